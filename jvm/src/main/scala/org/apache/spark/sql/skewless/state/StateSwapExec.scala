// In Spark's package because physical nodes are Spark-private.
package org.apache.spark.sql.skewless.state

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/**
 * The input of a stateful stage: marks its tasks, and in a batch that swaps tables exports the state that
 * moves before any of them runs. Stands above every exchange that feeds the stage. Nothing is done per row.
 *
 * @param swap    the driver's part; stateful operators serialize the plan below them, and it stays behind
 * @param measure what the loop wants measured of the state that the stage writes, if somebody watches
 */
case class StateSwapExec(
    mark: StateMark,
    @transient swap: Option[StateSwap],
    @transient measure: Option[StateMeasure],
    child: SparkPlan
) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def withNewChildInternal(newChild: SparkPlan): StateSwapExec = copy(child = newChild)
  override protected def doPrepare(): Unit = swap.foreach(_.moved)
  override protected def doExecute(): RDD[InternalRow] =
    new StateMarkRDD(child.execute(), mark, measure, swap.fold(StateMoves.None)(_.moved))
}
