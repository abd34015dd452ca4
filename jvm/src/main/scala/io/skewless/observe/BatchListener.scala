package io.skewless.observe

import java.util.{List => JList, UUID}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkConf, SparkContext, Success}
import org.apache.spark.scheduler.{
  SparkListener,
  SparkListenerEvent,
  SparkListenerExecutorAdded,
  SparkListenerExecutorExcluded,
  SparkListenerExecutorRemoved,
  SparkListenerExecutorUnexcluded,
  SparkListenerTaskEnd
}
import org.apache.spark.sql.streaming.StreamingQueryListener.{QueryProgressEvent, QueryTerminatedEvent}

/** Who else wants to know what becomes of a run. Called on the listener bus, once per fact. */
trait RunEvents {
  def committed(run: UUID, batchId: Long, batchMs: Long): Unit
  def ended(run: UUID): Unit
}

/**
 * The one listener of Skewless: hears tasks end, batches commit and queries end, and hands each fact to its
 * recorder. Runs in the driver on the listener bus; statistics only, nothing on the data path depends on it.
 */
final class BatchListener(
    retainedBatches: Int,
    tracked: Int,
    events: RunEvents,
    conf: SparkConf = new SparkConf(false)
) extends SparkListener {
  private val loads = new LoadRecorder(retainedBatches)
  private val keys = new KeyRecorder(retainedBatches, tracked)
  private val state = new StateRecorder(retainedBatches, tracked)
  private val commits = new CommitRecorder(retainedBatches)
  private val slots = new SlotRecorder(Slots.taskCpus(conf))
  private val localityWaitMs = Slots.localityWaitMs(conf)
  private val shown = mutable.HashMap.empty[String, ObservedBatch] // query -> the batch to come
  private val ended = mutable.LinkedHashSet.empty[String]
  val news = new News

  // -- what Spark says ------------------------------------------------------------------------------------

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit = {
    if (end.taskMetrics != null)
      synchronized(slots.ran(end.taskInfo.executorId, end.taskMetrics.executorRunTime))
    if (end.reason == Success && end.taskMetrics != null) synchronized {
      for {
        info <- end.taskInfo.accumulables
        update <- info.update
      } update match {
        case count: KeyCount => keys.record(info.id, count)
        case sizes: Seq[_] => state.record(info.id, sizes)
        case indices: JList[_] => loads.record(info.id, indices, end)
        case _ =>
      }
    }
  }

  override def onExecutorAdded(event: SparkListenerExecutorAdded): Unit =
    synchronized(slots.added(event.executorId, event.executorInfo.totalCores))

  override def onExecutorRemoved(event: SparkListenerExecutorRemoved): Unit =
    synchronized(slots.removed(event.executorId))

  override def onExecutorExcluded(event: SparkListenerExecutorExcluded): Unit =
    synchronized(slots.exclude(event.executorId))

  override def onExecutorUnexcluded(event: SparkListenerExecutorUnexcluded): Unit =
    synchronized(slots.include(event.executorId))

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case event: QueryProgressEvent =>
      val progress = event.progress
      val (id, run, batch, millis) =
        (progress.id.toString, progress.runId, progress.batchId, progress.batchDuration)
      for {
        operator <- progress.stateOperators.toSeq if operator != null && operator.customMetrics != null
      } {
        val metrics = operator.customMetrics.asScala.map { case (name, value) => name -> value.longValue }
        synchronized(commits.snapshotsTold(id, metrics))
      }
      if (synchronized(commits.record(id, run, batch, millis))) events.committed(run, batch, millis)
      news.add()
    case event: QueryTerminatedEvent =>
      synchronized(end(event.id.toString, event.runId))
      events.ended(event.runId)
    case _ =>
  }

  /** Whoever watched a query may still ask for its last batches a while after its end. */
  private def end(queryId: String, run: UUID): Unit = {
    commits.ended(run)
    shown.remove(queryId) // no other run plans that batch under it
    ended -= queryId
    ended += queryId // last: a query may end several times
    while (ended.size > BatchListener.EndedQueries) forget(ended.head)
  }

  private def forget(queryId: String): Unit = {
    ended -= queryId
    Seq[String => Unit](loads.forget, keys.forget, state.forget, commits.forget).foreach(_(queryId))
    shown.remove(queryId)
    ()
  }

  // -- what is about to run -------------------------------------------------------------------------------

  /**
   * A routed exchange is about to be read; the accumulator goes into its tasks. Called by `RoutedReadExec`.
   */
  def expectReads(accumulatorId: Long, batch: BatchLoads, counters: ReadCounters): Unit = synchronized {
    ended -= batch.queryId
    loads.expect(accumulatorId, batch, counters)
  }

  /** An exchange counts its rows by key; the accumulator goes into its map tasks. */
  def expectKeys(
      accumulatorId: Long,
      queryId: String,
      batchId: Long,
      join: JoinInput = JoinInput.None
  ): Unit =
    synchronized(keys.expect(accumulatorId, queryId, batchId, join))

  /** A stage measures its state; the accumulator goes into its tasks. */
  def expectSizes(accumulatorId: Long, queryId: String, batchId: Long): Unit =
    synchronized(state.expect(accumulatorId, queryId, batchId))

  /** A batch is about to be planned: whoever waits wakes up, and may ask for it. */
  def show(queryId: String, batchId: Long, batch: Upcoming, lookMs: Long): Unit = {
    synchronized {
      val rows = new BatchLoads(queryId, batchId, batch.epoch, batch.rows.length)
      batch.rows.copyToArray(rows.rows)
      shown(queryId) = new ObservedBatch(
        batchId,
        lookMs,
        Seq(rows),
        batch.keys,
        state.known(queryId, rows.partitions),
        slots.alive,
        localityWaitMs,
        sides = batch.sides
      )
    }
    news.add()
  }

  // -- what is known --------------------------------------------------------------------------------------

  /** The executors that take tasks. */
  def aliveSlots: Slots = synchronized(slots.alive)

  /** The loads of a query's exchanges, oldest batch first; an empty id asks for batch jobs. */
  def loads(queryId: String): Seq[BatchLoads] = synchronized(loads.of(queryId))

  /** The key hashes of the newest batch that has any. */
  def hotKeys(queryId: String): Array[Int] = synchronized(keys.newest(queryId))

  /** The newest batch of a query that was shown before it was planned. */
  def upcoming(queryId: String): Option[ObservedBatch] = synchronized(shown.get(queryId))

  /** Whether this run has committed a batch. */
  def hasCommitted(run: UUID): Boolean = synchronized(commits.has(run))

  /** -1 before the first. */
  def newestCommitted(queryId: String): Long = synchronized(commits.newest(queryId))

  /** The committed batches of a query after `after`, oldest first. */
  def observed(queryId: String, after: Long): Seq[ObservedBatch] = synchronized {
    for {
      (batch, ofBatch) <- loads.of(queryId).groupBy(_.batchId).toSeq.sortBy(_._1)
      if batch > after
      commit <- commits.of(queryId, batch)
    } yield {
      val (hot, values) = keys.of(queryId, batch)
      new ObservedBatch(
        batch,
        commit.millis,
        ofBatch,
        hot,
        state.known(queryId, ofBatch.head.partitions),
        slots.alive,
        localityWaitMs,
        values,
        commit.at,
        keys.sides(queryId, batch),
        commits.snapshotsOf(queryId)
      )
    }
  }
}

object BatchListener {

  /** How many queries that have ended are remembered. */
  val EndedQueries = 20

  /** Registers the accumulator of a routed exchange about to be read, and announces it. */
  def trackReads(context: SparkContext, batch: BatchLoads, counters: ReadCounters): PartitionsRead = {
    val read = new PartitionsRead
    context.register(read, "skewless partitions read")
    Application.of(context).foreach(_.listener.expectReads(read.id, batch, counters))
    read
  }

  /** Registers the accumulator of an exchange that counts its keys, and announces it. */
  def trackKeys(
      context: SparkContext,
      queryId: String,
      batchId: Long,
      join: JoinInput = JoinInput.None
  ): Option[KeyCounts] =
    Application.of(context).map { application =>
      val counts = new KeyCounts(application.conf.trackedKeys, application.conf.keyValues)
      context.register(counts, "skewless key counts")
      application.listener.expectKeys(counts.id, queryId, batchId, join)
      counts
    }

  /**
   * Registers the accumulator of a stage that measures its state, and announces it: with the keys worth
   * measuring.
   */
  def trackSizes(context: SparkContext, queryId: String, batchId: Long): Option[(Array[Int], KeySizes)] =
    Application.of(context).map { application =>
      val sizes = new KeySizes
      context.register(sizes, "skewless state sizes")
      application.listener.expectSizes(sizes.id, queryId, batchId)
      (application.listener.hotKeys(queryId), sizes)
    }
}
