// In Spark's package because it reads physical plans.
package org.apache.spark.sql.skewless.split

import org.apache.spark.sql.catalyst.expressions.{CollationAwareMurmur3Hash, Expression}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.datasources.v2.{BatchScanExec, FileScan, MicroBatchScanExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec
import org.apache.spark.sql.types.{CalendarIntervalType, DataType, MapType, ObjectType, VariantType}

/**
 * Whether every attempt of a map task sees the same rows, bit for bit: the twin of `RepeatableRows` for
 * physical plans. What is unknown is refused, and mappers take turns.
 */
private[skewless] object RepeatableInput {

  /** A hash of the rows that a plan gives, if it may choose among the targets of a split key. */
  def content(plan: SparkPlan): Option[Expression] = {
    val columns = plan.output.filter(column => canDecide(column.dataType))
    Option.when(columns.nonEmpty && repeats(plan))(new CollationAwareMurmur3Hash(columns))
  }

  /** Whether a source of the plan gave nothing in this batch: Spark puts an empty relation in its place. */
  def lacksRows(plan: SparkPlan): Boolean = plan.exists {
    case empty: LocalTableScanExec => empty.rows.isEmpty
    case _ => false
  }

  private def repeats(plan: SparkPlan): Boolean = {
    val steady = plan match {
      case _: ProjectExec | _: FilterExec | _: UnionExec | _: GenerateExec | _: ExpandExec |
          _: EventTimeWatermarkExec =>
        true
      case _: MicroBatchScanExec | _: FileSourceScanExec | _: RangeExec | _: LocalTableScanExec => true
      case scan: BatchScanExec => scan.scan.isInstanceOf[FileScan]
      case _ => false
    }
    steady && plan.expressions.forall(_.deterministic) && plan.subqueries.isEmpty && plan.children.forall(
      repeats
    )
  }

  /** Spark hashes a calendar interval in two ways, see `RepeatableRows`. */
  private def canDecide(dataType: DataType): Boolean = !dataType.existsRecursively {
    case _: MapType | _: VariantType | _: ObjectType | CalendarIntervalType => true
    case _ => false
  }
}
