package io.skewless.observe

import scala.collection.mutable

/** The newest sketch of each map task of one exchange in one batch, and the key values of all of them. */
private[observe] final class BatchKeys(val queryId: String, val batchId: Long) {
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

  def expect(accumulatorId: Long, queryId: String, batchId: Long): Unit =
    keys.add(accumulatorId, new BatchKeys(queryId, batchId))

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

  private def hot(ofQuery: Seq[BatchKeys], batchId: Long): HotKeys =
    HotKeys.merge(ofQuery.filter(_.batchId == batchId).flatMap(_.counts.values), tracked)

  def forget(queryId: String): Unit = keys.forget(queryId)
}
