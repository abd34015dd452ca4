package io.skewless

import java.nio.{ByteBuffer, ByteOrder}
import java.util.{ArrayList => JArrayList, List => JList}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkContext, Success}
import org.apache.spark.scheduler.{AccumulableInfo, SparkListener, SparkListenerEvent, SparkListenerTaskEnd}
import org.apache.spark.sql.streaming.StreamingQueryListener.{QueryProgressEvent, QueryTerminatedEvent}
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

/** What a batch that is about to be planned holds: rows by partition under the table that it would be routed by, and hot keys. */
final case class Upcoming(epoch: Long, rows: Array[Long], keys: HotKeys)

/**
 * One batch of a query as the loop sees it: loads by partition and hot keys, all its routed exchanges together.
 *
 * @param batchMs how long it took; of a batch that is still to come, how long it took to look at it
 */
final class ObservedBatch(
    val batchId: Long,
    val batchMs: Long,
    loads: Seq[BatchLoads],
    keys: HotKeys,
    state: KnownState,
    values: Map[Int, String] = Map.empty
) {
  import ObservedBatch._

  val epoch: Long = loads.head.epoch
  val partitions: Int = loads.head.partitions
  private val alike = loads.filter(l => l.partitions == partitions && l.epoch == epoch)

  def rows: Array[Byte] = longs(Array.tabulate(partitions)(p => alike.map(_.rows(p)).sum))
  def bytes: Array[Byte] = longs(Array.tabulate(partitions)(p => alike.map(_.bytes(p)).sum))

  /** One task reads all exchanges of its stage: its time counts once. */
  def runMs: Array[Byte] = longs(Array.tabulate(partitions)(p => alike.map(_.runMs(p)).max))
  def keyHashes: Array[Byte] = ints(keys.hashes)
  def keyRows: Array[Byte] = longs(keys.rows)
  def maxError: Long = keys.maxError

  def stateHashes: Array[Byte] = ints(state.hashes)
  def stateBytes: Array[Byte] = longs(state.bytes)
  def partitionStateBytes: Array[Byte] = longs(state.partitionBytes)

  /** The values of hot keys for people, as JSON by key hash; empty unless asked for. */
  def keyValues: String = KeyValues.json(values.view.filterKeys(keys.hashes.toSet).toMap)
  def sampleRate: Double = 1.0 / KeySampler.Stride
}

object ObservedBatch {
  private def buffer(bytes: Int) = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN)
  private def longs(values: Array[Long]) = values.foldLeft(buffer(8 * values.length))(_.putLong(_)).array()
  private def ints(values: Array[Int]) = values.foldLeft(buffer(4 * values.length))(_.putInt(_)).array()
}

/**
 * Ties each task that reads a routed exchange to its partition, and keeps loads and hot keys of the last batches. Runs in the driver
 * on the listener bus; statistics only, nothing on the data path depends on it.
 */
final class LoadListener(retainedBatches: Int, tracked: Int) extends SparkListener {
  private val byAccumulator = mutable.HashMap.empty[Long, (BatchLoads, ReadCounters)]
  private val order = mutable.ArrayDeque.empty[(Long, BatchLoads)]
  private val keyCounts = mutable.LinkedHashMap.empty[Long, BatchKeys]
  private val stateSizes = mutable.LinkedHashMap.empty[Long, (String, Long)] // accumulator -> query, batch
  private val states = mutable.HashMap.empty[String, StateMemory]
  private var news, heard = 0L // batches committed, and of how many of them the waiting loop has heard
  private val shown = mutable.HashMap.empty[String, ObservedBatch] // query -> the batch to come
  private val ended = mutable.LinkedHashSet.empty[String]
  private val committed = mutable.HashMap.empty[String, Map[Long, Long]].withDefaultValue(Map.empty)

  private[skewless] def register(accumulatorId: Long, loads: BatchLoads, counters: ReadCounters): Unit = synchronized {
    ended -= loads.queryId
    byAccumulator(accumulatorId) = (loads, counters)
    order.append(accumulatorId -> loads)
    val sameQuery = order.filter(_._2.queryId == loads.queryId)
    sameQuery.dropRight(retainedBatches).foreach { old =>
      byAccumulator.remove(old._1)
      order -= old
    }
  }

  private[skewless] def registerKeys(accumulatorId: Long, keys: BatchKeys): Unit = synchronized {
    keyCounts(accumulatorId) = keys
    val sameQuery = keyCounts.filter(_._2.queryId == keys.queryId)
    sameQuery.keys.take(sameQuery.size - retainedBatches).foreach(keyCounts.remove)
  }

  private[skewless] def registerSizes(accumulatorId: Long, queryId: String, batchId: Long): Unit = synchronized {
    stateSizes(accumulatorId) = (queryId, batchId)
    if (stateSizes.size > 2 * retainedBatches) stateSizes.remove(stateSizes.head._1)
  }

  /** The hot keys of the newest batch that has any. */
  private[skewless] def hotKeys(queryId: String): Array[Int] = synchronized {
    val ofQuery = keyCounts.values.filter(keys => keys.queryId == queryId && keys.counts.nonEmpty)
    ofQuery.map(_.batchId).maxOption.fold(Array.emptyIntArray) { newest =>
      HotKeys.merge(ofQuery.filter(_.batchId == newest).flatMap(_.counts.values), tracked).hashes
    }
  }

  private def stateOf(queryId: String): StateMemory = states.getOrElseUpdate(queryId, new StateMemory(4 * tracked))

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit =
    if (end.reason == Success && end.taskMetrics != null) synchronized {
      for {
        info <- end.taskInfo.accumulables
        update <- info.update
      } update match {
        case count: KeyCount if count.mapPartition >= 0 =>
          keyCounts.get(info.id).foreach(_.add(count))
        case sizes: Seq[_] =>
          stateSizes.get(info.id).foreach { case (query, batch) =>
            stateOf(query).learn(batch, sizes.collect { case size: TaskSizes => size })
          }
        case indices: JList[_] =>
          byAccumulator.get(info.id).foreach { case (loads, counters) =>
            record(loads, counters, indices.asScala.map(_.asInstanceOf[Integer].intValue).toSeq, end)
          }
        case _ =>
      }
    }

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case event: QueryProgressEvent =>
      synchronized {
        val progress = event.progress
        val id = progress.id.toString
        val known = committed(id) + (progress.batchId -> progress.batchDuration)
        committed(id) = if (known.size <= 2 * retainedBatches) known else known.toSeq.sorted.takeRight(retainedBatches).toMap
        news += 1
        notifyAll()
      }
    case event: QueryTerminatedEvent =>
      synchronized {
        shown.remove(event.id.toString) // no other run plans that batch under it
        ended -= event.id.toString
        ended += event.id.toString // last: a query may end several times
        while (ended.size > LoadListener.EndedQueries) forget(ended.head)
      }
    case _ =>
  }

  /** Whoever watched a query may still ask for its last batches a while after its end. */
  private def forget(queryId: String): Unit = {
    ended -= queryId
    order.filterInPlace { case (id, loads) => loads.queryId != queryId || { byAccumulator.remove(id); false } }
    keyCounts.filterInPlace((_, keys) => keys.queryId != queryId)
    Seq(states, shown, committed).foreach(_.remove(queryId))
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

  /** Waits until a batch is committed that the last call has not heard of, or for so many milliseconds. One thread waits at a time. */
  def await(millis: Long): Boolean = synchronized {
    if (news == heard && millis > 0) wait(millis)
    val isNews = news != heard
    heard = news
    isNews
  }

  /** A batch is about to be planned: whoever waits is told, and may ask for it. */
  def show(queryId: String, batchId: Long, batch: Upcoming, lookMs: Long): Unit = synchronized {
    val loads = new BatchLoads(queryId, batchId, batch.epoch, batch.rows.length)
    batch.rows.copyToArray(loads.rows)
    shown(queryId) = new ObservedBatch(batchId, lookMs, Seq(loads), batch.keys, knownState(queryId, loads.partitions))
    news += 1
    notifyAll()
  }

  /** The newest batch of a query that was shown before it was planned. */
  def upcoming(queryId: String): Option[ObservedBatch] = synchronized(shown.get(queryId))

  private def knownState(queryId: String, n: Int): KnownState = states.getOrElse(queryId, new StateMemory(0)).known(n)

  /** -1 before the first. */
  def newestCommitted(queryId: String): Long = synchronized(committed(queryId).keys.maxOption.getOrElse(-1L))

  /** The committed batches of a query after `after`, oldest first. */
  def observed(queryId: String, after: Long): Seq[ObservedBatch] = synchronized {
    val keys = keyCounts.values.filter(_.queryId == queryId).groupBy(_.batchId)
    for {
      (batch, loads) <- this.loads(queryId).groupBy(_.batchId).toSeq.sortBy(_._1)
      if batch > after
      batchMs <- committed(queryId).get(batch)
    } yield {
      val ofBatch = keys.getOrElse(batch, Nil)
      val hot = HotKeys.merge(ofBatch.flatMap(_.counts.values), tracked)
      val state = knownState(queryId, loads.head.partitions)
      new ObservedBatch(batch, batchMs, loads, hot, state, KeyValues.merge(ofBatch.map(_.values)))
    }
  }
}

/** The newest sketch of each map task of one exchange in one batch, and the key values of all of them. */
private[skewless] final class BatchKeys(val queryId: String, val batchId: Long) {
  val counts: mutable.Map[Int, KeyCount] = mutable.HashMap.empty
  var values: KeyValues = KeyValues.None

  def add(count: KeyCount): Unit = {
    counts.update(count.mapPartition, count.copy(values = KeyValues.None))
    values = values ++ count.values
  }
}

object LoadListener {

  /** How many queries that have ended are remembered. */
  val EndedQueries = 20

  /** Announces a routed exchange about to be read; the accumulator goes into its tasks. Called by `RoutedReadExec`. */
  def track(context: SparkContext, loads: BatchLoads, counters: ReadCounters): PartitionsRead = {
    val read = new PartitionsRead
    context.register(read, "skewless partitions read")
    SkewlessPlugin.driverOf(context).foreach(_.listener.register(read.id, loads, counters))
    read
  }

  /** Announces that an exchange counts its rows by key; the accumulator goes into its map tasks. */
  def countKeys(context: SparkContext, queryId: String, batchId: Long): Option[KeyCounts] =
    SkewlessPlugin.driverOf(context).map { driver =>
      val counts = new KeyCounts(driver.conf.trackedKeys, driver.conf.keyValues)
      context.register(counts, "skewless key counts")
      driver.listener.registerKeys(counts.id, new BatchKeys(queryId, batchId))
      counts
    }

  /** Announces that a stage measures its state: the keys worth measuring, and the accumulator that goes into its tasks. */
  def measureState(context: SparkContext, queryId: String, batchId: Long): Option[(Array[Int], KeySizes)] =
    SkewlessPlugin.driverOf(context).map { driver =>
      val sizes = new KeySizes
      context.register(sizes, "skewless state sizes")
      driver.listener.registerSizes(sizes.id, queryId, batchId)
      (driver.listener.hotKeys(queryId), sizes)
    }
}
