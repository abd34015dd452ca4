// In Spark's package because it reads Spark-private logical plans.
package org.apache.spark.sql.skewless.route

import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.{
  DataSourceV2ScanRelation,
  FileScan,
  StreamingDataSourceV2ScanRelation
}
import org.apache.spark.sql.types._

/**
 * Whether a retried task sees the same rows, bit for bit, in whatever order. Only then may a row's content
 * choose among the targets of a split key.
 *
 * True for files, replayable stream sources and generated rows, and for deterministic row-by-row steps over
 * them. Not for anything whose values may hang on the order in which rows arrive (a float sum, a limit, a
 * window), nor for user code over partitions: there a retry could write a row elsewhere than the first
 * attempt did, which loses and doubles rows. What is unknown is refused.
 */
private[skewless] object RepeatableRows {

  def apply(plan: LogicalPlan): Boolean = {
    val steady = plan match {
      case _: Project | _: Filter | _: Union | _: Generate | _: Expand | _: EventTimeWatermark => true
      case _: Range | _: LocalRelation | _: StreamingDataSourceV2ScanRelation => true
      case relation: LogicalRelation => relation.relation.isInstanceOf[HadoopFsRelation]
      case relation: DataSourceV2ScanRelation => relation.scan.isInstanceOf[FileScan]
      case _ => false
    }
    steady && plan.expressions.forall(_.deterministic) && plan.children.forall(apply)
  }

  def canHash(dataType: DataType): Boolean = !dataType.existsRecursively {
    case _: MapType | _: VariantType | _: ObjectType => true
    case _ => false
  }

  /**
   * Whether a column's hash may take part in the choice. Spark hashes a calendar interval with its days when
   * interpreted and without them when compiled: an attempt that falls back to the interpreter would write the
   * row elsewhere.
   */
  def canDecide(dataType: DataType): Boolean =
    canHash(dataType) && !dataType.existsRecursively(_ == CalendarIntervalType)
}
