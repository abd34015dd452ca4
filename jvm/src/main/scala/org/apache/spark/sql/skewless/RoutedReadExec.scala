// In Spark's package because physical nodes are Spark-private.
package org.apache.spark.sql.skewless

import io.skewless.{LoadListener, PartitionsRead}
import org.apache.spark.{Partition, Partitioner, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/**
 * The reading end of a routed exchange: passes rows through and notes, once a task, which partition the task reads, so that the
 * listener can tie the task's rows, bytes and time to it. Nothing is done per row.
 *
 * Plans travel inside tasks (generated code may refer to them), so it names its query and holds no part of it.
 *
 * @param batchId -1 outside a stream, where `queryId` is empty
 */
case class RoutedReadExec(queryId: String, batchId: Long, epoch: Long, child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def withNewChildInternal(newChild: SparkPlan): RoutedReadExec = copy(child = newChild)

  override protected def doExecute(): RDD[InternalRow] = {
    val rows = child.execute()
    val read = LoadListener.track(sparkContext, queryId, batchId, epoch, rows.getNumPartitions)
    new RoutedReadRDD(rows, read)
  }
}

private class RoutedReadRDD(rows: RDD[InternalRow], read: PartitionsRead) extends RDD[InternalRow](rows) {
  override val partitioner: Option[Partitioner] = rows.partitioner
  override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions
  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = {
    read.add(split.index)
    firstParent[InternalRow].iterator(split, context)
  }
}
