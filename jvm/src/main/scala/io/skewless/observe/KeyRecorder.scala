package io.skewless.observe

import scala.collection.mutable

/**
 * What an exchange is to a join.
 *
 * @param isRight whether it feeds the right side
 * @param sides   which sides of the query's joins a split may spread: "left", "right", "either" or none, ""
 */
final case class JoinInput(isRight: Boolean, sides: String)

object JoinInput {

  /** Of an exchange that feeds no join. */
  val None: JoinInput = JoinInput(isRight = false, "")
}

/**
 * The newest sketch of each map task of one exchange in one batch, and the key values of all of them; once
 * the batch is `settled`, what all its exchanges came to instead.
 */
private[observe] final class BatchKeys(val queryId: String, val batchId: Long, val join: JoinInput) {
  val counts: mutable.Map[Int, KeyCount] = mutable.HashMap.empty
  var values: KeyValues = KeyValues.None
  var settled: Option[BatchTotal] = None

  def add(count: KeyCount): Unit = if (settled.isEmpty) {
    counts.update(count.mapPartition, count.copy(values = KeyValues.None))
    values = values ++ count.values
  }

  def isCounted: Boolean = counts.nonEmpty || settled.exists(_.hot.hashes.nonEmpty)

  def settle(total: BatchTotal): Unit = {
    settled = Some(total)
    counts.clear()
    values = KeyValues.None
  }
}

/** The hot keys of a batch over all its exchanges, and the values that are known of them. */
private[observe] final case class BatchTotal(hot: HotKeys, values: Map[Int, String])

/**
 * The hot keys of each batch, from the sketches of its map tasks. A sketch takes 12 bytes for each tracked
 * key and map task, so a batch keeps them only while tasks of it may still be heard of. Driver; not
 * thread-safe.
 */
private[observe] final class KeyRecorder(retainedBatches: Int, tracked: Int) {
  private val keys = new Retained[BatchKeys](retainedBatches, _.queryId, _.batchId)

  def expect(
      accumulatorId: Long,
      queryId: String,
      batchId: Long,
      join: JoinInput = JoinInput.None
  ): Unit = {
    keys.add(accumulatorId, new BatchKeys(queryId, batchId, join))
    settleBefore(queryId, batchId - KeyRecorder.Unsettled)
  }

  private def settleBefore(queryId: String, batchId: Long): Unit = {
    val old = keys.of(queryId).filter(known => known.batchId <= batchId && known.settled.isEmpty)
    old.groupBy(_.batchId).values.foreach { ofBatch =>
      val total = totalOf(ofBatch)
      ofBatch.foreach(_.settle(total))
    }
  }

  def record(accumulatorId: Long, count: KeyCount): Unit =
    if (count.mapPartition >= 0) keys.get(accumulatorId).foreach(_.add(count))

  /** The key hashes of the newest batch that has any. */
  def newest(queryId: String): Array[Int] = {
    val counted = keys.of(queryId).filter(_.isCounted)
    counted.map(_.batchId).maxOption.fold(Array.emptyIntArray)(of(queryId, _)._1.hashes)
  }

  /** The hot keys of one batch, and the values that are known of them. */
  def of(queryId: String, batchId: Long): (HotKeys, Map[Int, String]) = {
    val total = totalOf(keys.of(queryId).filter(_.batchId == batchId))
    (total.hot, total.values)
  }

  /** Which sides of its joins a split may spread, as the query was planned for this batch. */
  def sides(queryId: String, batchId: Long): String =
    keys.of(queryId).find(_.batchId == batchId).fold("")(_.join.sides)

  /** A batch that runs again counts by what it gives now. */
  private def totalOf(ofBatch: Seq[BatchKeys]): BatchTotal = {
    val (settled, open) = ofBatch.partition(_.settled.nonEmpty)
    if (open.isEmpty && settled.nonEmpty) settled.head.settled.get
    else {
      val right = open.filter(_.join.isRight).flatMap(_.counts.values)
      val hot = HotKeys.merge(open.flatMap(_.counts.values), tracked, right)
      BatchTotal(hot, KeyValues.merge(open.map(_.values)).view.filterKeys(hot.hashes.toSet).toMap)
    }
  }

  /** How many sketches are held. */
  def sketches(queryId: String): Int = keys.of(queryId).map(_.counts.size).sum

  def forget(queryId: String): Unit = keys.forget(queryId)
}

private[observe] object KeyRecorder {

  /** How many batches keep their sketches: tasks' ends are heard of later than the next batch is planned. */
  val Unsettled = 4
}
