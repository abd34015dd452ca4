package io.skewless

import java.util.{ArrayList => JArrayList, List => JList}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkContext, Success}
import org.apache.spark.scheduler.{AccumulableInfo, SparkListener, SparkListenerTaskEnd}
import org.apache.spark.util.AccumulatorV2

/**
 * What the tasks that read one routed exchange did, by partition, in one batch: the newest successful attempt of each partition, so
 * retries, speculation and a second action in the same batch count once. Arrays are as long as the exchange has partitions; a
 * partition that has not been read yet has `runMs` -1.
 *
 * @param batchId -1 outside a stream, where `queryId` is empty
 */
final class BatchLoads(val queryId: String, val batchId: Long, val epoch: Long, val partitions: Int) {
  val rows: Array[Long] = new Array[Long](partitions)
  val bytes: Array[Long] = new Array[Long](partitions)
  val runMs: Array[Long] = Array.fill(partitions)(-1L)
}

/** The accumulators that count what tasks read of one exchange, and of no other that the same task reads: Spark's own metrics. */
final case class ReadCounters(rows: Long, bytes: Seq[Long])

/** Which partitions a task read: added to once a task by `RoutedReadExec`, delivered with the task's end. */
final class PartitionsRead extends AccumulatorV2[Integer, JList[Integer]] {
  private val indices = new JArrayList[Integer]()
  override def isZero: Boolean = indices.isEmpty
  override def copy(): PartitionsRead = { val other = new PartitionsRead; other.indices.addAll(indices); other }
  override def reset(): Unit = indices.clear()
  override def add(index: Integer): Unit = indices.add(index)
  override def value: JList[Integer] = indices

  /** The driver's copy stays empty: only each task's own update matters, and the listener takes it from the task's end. */
  override def merge(other: AccumulatorV2[Integer, JList[Integer]]): Unit = ()
}

/**
 * Ties each task that reads a routed exchange to its partition, and keeps the loads of the last batches. Runs in the driver on the
 * listener bus; statistics only, nothing on the data path depends on it.
 */
final class LoadListener(retainedBatches: Int) extends SparkListener {
  private val byAccumulator = mutable.HashMap.empty[Long, (BatchLoads, ReadCounters)]
  private val order = mutable.ArrayDeque.empty[(Long, BatchLoads)]

  private[skewless] def register(accumulatorId: Long, loads: BatchLoads, counters: ReadCounters): Unit = synchronized {
    byAccumulator(accumulatorId) = (loads, counters)
    order.append(accumulatorId -> loads)
    val sameQuery = order.filter(_._2.queryId == loads.queryId)
    sameQuery.dropRight(retainedBatches).foreach { old =>
      byAccumulator.remove(old._1)
      order -= old
    }
  }

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit =
    if (end.reason == Success && end.taskMetrics != null) synchronized {
      for {
        info <- end.taskInfo.accumulables
        (loads, counters) <- byAccumulator.get(info.id)
        indices <- info.update
      } record(loads, counters, indices.asInstanceOf[JList[Integer]].asScala.map(_.intValue).toSeq, end)
    }

  /** A task that reads several partitions (after `coalesce`) has one count and one time: they are shared out evenly among them. */
  private def record(loads: BatchLoads, counters: ReadCounters, indices: Seq[Int], end: SparkListenerTaskEnd): Unit = {
    val counted = end.taskInfo.accumulables.collect { case AccumulableInfo(id, _, Some(n: Long), _, _, _, _) => id -> n }.toMap
    indices.foreach { index =>
      loads.rows(index) = counted.getOrElse(counters.rows, 0L) / indices.size
      loads.bytes(index) = counters.bytes.map(counted.getOrElse(_, 0L)).sum / indices.size
      loads.runMs(index) = end.taskMetrics.executorRunTime / indices.size
    }
  }

  /** The loads of a query's exchanges, oldest batch first; an empty id asks for batch jobs. */
  def loads(queryId: String): Seq[BatchLoads] = synchronized(order.map(_._2).filter(_.queryId == queryId).toSeq)
}

object LoadListener {

  /** Announces a routed exchange about to be read; the accumulator goes into its tasks. Called by `RoutedReadExec`. */
  def track(context: SparkContext, loads: BatchLoads, counters: ReadCounters): PartitionsRead = {
    val read = new PartitionsRead
    context.register(read, "skewless partitions read")
    SkewlessPlugin.driverOf(context).foreach(_.listener.register(read.id, loads, counters))
    read
  }
}
