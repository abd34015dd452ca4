// In Spark's package because physical nodes are Spark-private.
package org.apache.spark.sql.skewless.route

import io.skewless.observe.{BatchListener, BatchLoads, PartitionsRead, ReadCounters}
import org.apache.spark.{Partition, Partitioner, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.adaptive.QueryStageExec
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec
import org.apache.spark.sql.execution.metric.SQLShuffleReadMetricsReporter.{
  LOCAL_BYTES_READ,
  RECORDS_READ,
  REMOTE_BYTES_READ
}

/**
 * The reading end of a routed exchange: passes rows through and notes, once a task, which partition the task
 * reads, so that the listener can tie the task's rows, bytes and time to it. Nothing is done per row. Holds
 * plain values only: stateful operators above it serialize their whole subtree into tasks.
 *
 * @param batchId -1 outside a stream, where `queryId` is empty
 */
case class RoutedReadExec(queryId: String, batchId: Long, epoch: Long, child: SparkPlan)
    extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def withNewChildInternal(newChild: SparkPlan): RoutedReadExec = copy(child = newChild)

  override protected def doExecute(): RDD[InternalRow] = {
    val rows = child.execute()
    val loads = new BatchLoads(queryId, batchId, epoch, rows.getNumPartitions)
    new RoutedReadRDD(rows, BatchListener.trackReads(sparkContext, loads, counters))
  }

  /** The exchange below, whether adaptive execution has made a stage of it or reuses another's. */
  private def counters: ReadCounters = {
    def exchange(plan: SparkPlan): SparkPlan = plan match {
      case stage: QueryStageExec => exchange(stage.plan)
      case reused: ReusedExchangeExec => exchange(reused.child)
      case other => other
    }
    val ids = exchange(child).metrics.view.mapValues(_.id)
    ReadCounters(ids.getOrElse(RECORDS_READ, -1L), Seq(LOCAL_BYTES_READ, REMOTE_BYTES_READ).flatMap(ids.get))
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
