package io.skewless.observe

import java.util.{ArrayList => JArrayList, List => JList}

import scala.jdk.CollectionConverters._

import org.apache.spark.scheduler.{AccumulableInfo, SparkListenerTaskEnd}
import org.apache.spark.util.AccumulatorV2

/**
 * The accumulators that count what tasks read of one exchange, and of no other that the same task reads:
 * Spark's own metrics.
 */
final case class ReadCounters(rows: Long, bytes: Seq[Long])

/**
 * Which partitions a task read: added to once per task by `RoutedReadExec`, delivered with the task's end.
 */
final class PartitionsRead extends AccumulatorV2[Integer, JList[Integer]] {
  private val indices = new JArrayList[Integer]()
  override def isZero: Boolean = indices.isEmpty
  override def copy(): PartitionsRead = {
    val other = new PartitionsRead; other.indices.addAll(indices); other
  }
  override def reset(): Unit = indices.clear()
  override def add(index: Integer): Unit = indices.add(index)
  override def value: JList[Integer] = indices

  /**
   * The driver's copy stays empty: only each task's own update matters, and the listener takes it from there.
   */
  override def merge(other: AccumulatorV2[Integer, JList[Integer]]): Unit = ()
}

/** The loads by partition of each routed exchange. Driver; not thread-safe. */
private[observe] final class LoadRecorder(retainedBatches: Int) {
  private type Read = (BatchLoads, ReadCounters)
  private val reads = new Retained[Read](retainedBatches, _._1.queryId, _._1.batchId)

  def expect(accumulatorId: Long, loads: BatchLoads, counters: ReadCounters): Unit =
    reads.add(accumulatorId, (loads, counters))

  /**
   * A task that reads several partitions (after `coalesce`) has one count and one time: each gets an equal
   * part.
   */
  def record(accumulatorId: Long, read: JList[_], end: SparkListenerTaskEnd): Unit =
    reads.get(accumulatorId).foreach { case (loads, counters) =>
      val indices = read.asScala.map(_.asInstanceOf[Integer].intValue)
      val counted = end.taskInfo.accumulables.collect {
        case AccumulableInfo(id, _, Some(n: Long), _, _, _, _) =>
          id -> n
      }.toMap
      indices.foreach { index =>
        loads.rows(index) = counted.getOrElse(counters.rows, 0L) / indices.size
        loads.bytes(index) = counters.bytes.map(counted.getOrElse(_, 0L)).sum / indices.size
        loads.runMs(index) = end.taskMetrics.executorRunTime / indices.size
        loads.cpuMs(index) = end.taskMetrics.executorCpuTime / 1000000 / indices.size
        loads.remoteBytes(index) = end.taskMetrics.shuffleReadMetrics.remoteBytesRead / indices.size
        loads.startedAt(index) = end.taskInfo.launchTime
        loads.executors(index) = end.taskInfo.executorId
      }
    }

  /** Oldest first; an empty id asks for batch jobs. */
  def of(queryId: String): Seq[BatchLoads] = reads.of(queryId).map(_._1)

  def forget(queryId: String): Unit = reads.forget(queryId)
}
