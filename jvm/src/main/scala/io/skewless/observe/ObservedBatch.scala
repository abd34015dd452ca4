package io.skewless.observe

import java.nio.{ByteBuffer, ByteOrder}

/**
 * What the tasks that read one routed exchange did, by partition, in one batch: the newest successful attempt
 * of each partition, so retries, speculation and a second action in the same batch count once. Arrays are as
 * long as the exchange has partitions; a partition that has not been read yet has `runMs` -1.
 *
 * @param batchId -1 outside a stream, where `queryId` is empty
 */
final class BatchLoads(val queryId: String, val batchId: Long, val epoch: Long, val partitions: Int) {
  val rows: Array[Long] = new Array[Long](partitions)
  val bytes: Array[Long] = new Array[Long](partitions)
  val runMs: Array[Long] = Array.fill(partitions)(-1L)
  val cpuMs: Array[Long] = Array.fill(partitions)(-1L)

  /** Of what the partition's task read of shuffles, what came from other hosts or executors. */
  val remoteBytes: Array[Long] = new Array[Long](partitions)

  /** When the driver launched the partition's task, by its clock, and on which executor. */
  val startedAt: Array[Long] = Array.fill(partitions)(-1L)
  val executors: Array[String] = new Array[String](partitions)
}

/**
 * What a batch that is about to be planned holds: rows by partition under the table that it would be routed
 * by, and hot keys.
 */
final case class Upcoming(epoch: Long, rows: Array[Long], keys: HotKeys, sides: String = "")

/**
 * One batch of a query as the loop sees it: loads by partition and hot keys, all its routed exchanges
 * together. Arrays are handed to Python as little-endian bytes: one call per array, not one per element.
 *
 * @param batchMs how long it took; of a batch that is still to come, how long it took to look at it
 * @param slots   of the executors that are alive when this is asked for
 * @param snapshots the version of the last snapshot, of the partitions that Spark names: those with the oldest
 * @param sides  which side of its join a split may spread, see `JoinInput`
 * @param localityWaitMs how long a free slot waits for tasks whose state lies on its executor
 * @param committedAt when the driver heard of its commit, in milliseconds of the epoch; 0 of a batch to come
 */
final class ObservedBatch(
    val batchId: Long,
    val batchMs: Long,
    loads: Seq[BatchLoads],
    keys: HotKeys,
    state: KnownState,
    slots: Slots,
    val localityWaitMs: Long,
    values: Map[Int, String] = Map.empty,
    val committedAt: Long = 0,
    val sides: String = "",
    snapshots: Map[Int, Long] = Map.empty
) {
  import ObservedBatch._

  val epoch: Long = loads.head.epoch
  val partitions: Int = loads.head.partitions
  private val alike = loads.filter(l => l.partitions == partitions && l.epoch == epoch)

  def rows: Array[Byte] = longs(Array.tabulate(partitions)(p => alike.map(_.rows(p)).sum))
  def bytes: Array[Byte] = longs(Array.tabulate(partitions)(p => alike.map(_.bytes(p)).sum))

  /** One task reads all exchanges of its stage: its time counts once. */
  def runMs: Array[Byte] = longs(Array.tabulate(partitions)(p => longest(p).runMs(p)))
  def cpuMs: Array[Byte] = longs(Array.tabulate(partitions)(p => longest(p).cpuMs(p)))
  def remoteBytes: Array[Byte] = longs(Array.tabulate(partitions)(p => longest(p).remoteBytes(p)))

  /** When each partition's task was launched, from the first launch on; -1 where nobody knows. */
  def startMs: Array[Byte] = {
    val launched = Array.tabulate(partitions)(p => longest(p).startedAt(p))
    val first = launched.filter(_ >= 0).minOption.getOrElse(0L)
    longs(launched.map(at => if (at < 0) -1L else at - first))
  }

  /**
   * The executor that ran each partition's task, as a place in `executorSlots`; -1 if it is gone, or unknown.
   */
  def executors: Array[Byte] = ints(Array.tabulate(partitions)(p => slots.indexOf(longest(p).executors(p))))
  def executorSlots: Array[Byte] = ints(slots.byExecutor.map(_._2).toArray)

  /** The ids of the executors in `executorSlots`; none has a line break. */
  def executorIds: String = slots.byExecutor.map(_._1).mkString("\n")

  /** How long the tasks of each, of all queries and jobs, have run since it came. */
  def executorBusyMs: Array[Byte] =
    longs(slots.byExecutor.map { case (executor, _) => slots.busyMs.getOrElse(executor, 0L) }.toArray)

  /** The version of the last snapshot of each partition, -1 if there is none; -2 where nobody told. */
  def snapshotVersions: Array[Byte] = longs(Array.tabulate(partitions)(snapshots.getOrElse(_, -2L)))

  /** The stage whose task of a partition ran longest, if several have such a partition. */
  private def longest(p: Int): BatchLoads = alike.maxBy(_.runMs(p))

  def keyHashes: Array[Byte] = ints(keys.hashes)
  def keyRows: Array[Byte] = longs(keys.rows)
  def rightRows: Array[Byte] = longs(keys.rightRows)
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
