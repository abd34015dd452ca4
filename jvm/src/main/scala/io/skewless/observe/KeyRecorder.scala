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

/** The newest sketch of each map task of one exchange in one batch, and the key values of all of them. */
private[observe] final class BatchKeys(val queryId: String, val batchId: Long, val join: JoinInput) {
  val counts: mutable.Map[Int, KeyCount] = mutable.HashMap.empty
  var values: KeyValues = KeyValues.None

  def add(count: KeyCount): Unit = {
    counts.update(count.mapPartition, count.copy(values = KeyValues.None))
    values = values ++ count.values
  }
}

/** The hot keys of each batch, from the sketches of its map tasks. Driver; not thread-safe. */
private[observe] final class KeyRecorder(retainedBatches: Int, tracked: Int) {
  private val keys = new Retained[BatchKeys](retainedBatches, _.queryId, _.batchId)

  def expect(accumulatorId: Long, queryId: String, batchId: Long, join: JoinInput = JoinInput.None): Unit =
    keys.add(accumulatorId, new BatchKeys(queryId, batchId, join))

  def record(accumulatorId: Long, count: KeyCount): Unit =
    if (count.mapPartition >= 0) keys.get(accumulatorId).foreach(_.add(count))

  /** The key hashes of the newest batch that has any. */
  def newest(queryId: String): Array[Int] = {
    val counted = keys.of(queryId).filter(_.counts.nonEmpty)
    counted.map(_.batchId).maxOption.fold(Array.emptyIntArray)(batch => hot(counted, batch).hashes)
  }

  /** The hot keys of one batch, and the values that are known of them. */
  def of(queryId: String, batchId: Long): (HotKeys, Map[Int, String]) = {
    val ofQuery = keys.of(queryId)
    (hot(ofQuery, batchId), KeyValues.merge(ofQuery.filter(_.batchId == batchId).map(_.values)))
  }

  /** Which sides of its joins a split may spread, as the query was planned for this batch. */
  def sides(queryId: String, batchId: Long): String =
    keys.of(queryId).find(_.batchId == batchId).fold("")(_.join.sides)

  private def hot(ofQuery: Seq[BatchKeys], batchId: Long): HotKeys = {
    val ofBatch = ofQuery.filter(_.batchId == batchId)
    HotKeys.merge(
      ofBatch.flatMap(_.counts.values),
      tracked,
      ofBatch.filter(_.join.isRight).flatMap(_.counts.values)
    )
  }

  def forget(queryId: String): Unit = keys.forget(queryId)
}
