// In Spark's package because physical nodes are Spark-private.
package org.apache.spark.sql.skewless.placement

import org.apache.spark.{Partition, Partitioner, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/**
 * Tells Spark where the tasks of a stateful stage should run. Stands above the topmost stateful operator of
 * the stage: the scheduler asks a stage's RDDs from the top down, and the first that prefers a place decides,
 * so it goes before the state store's own. Rows pass through; nothing is done per row.
 *
 * @param wishes the driver's part; stateful operators further up serialize the plan below them, and it stays
 *               behind
 */
case class PlacedStageExec(@transient wishes: PlacementWishes, child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def withNewChildInternal(newChild: SparkPlan): PlacedStageExec = copy(child = newChild)
  override protected def doExecute(): RDD[InternalRow] = new PlacedRDD(child.execute(), wishes)
}

/**
 * Asks for the wish when a task is about to be placed, not when the batch is planned: an executor may die in
 * between. Without a wish the scheduler goes on to the RDDs below, as in plain Spark.
 */
private[placement] final class PlacedRDD(
    rows: RDD[InternalRow],
    @transient private val wishes: PlacementWishes
) extends RDD[InternalRow](rows) {
  override val partitioner: Option[Partitioner] = rows.partitioner
  override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions
  override protected def getPreferredLocations(split: Partition): Seq[String] =
    wishes.locationOf(split.index).toSeq
  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] =
    firstParent[InternalRow].iterator(split, context)
}
