package io.skewless.observe

import scala.collection.mutable

/**
 * Items by the accumulator that fills them, of the newest `most` batches of each query; outside a stream,
 * where the query is empty and there are no batches, the newest `most` items. A batch has one item per
 * exchange. Driver; not thread-safe.
 */
private[observe] final class Retained[T](most: Int, queryOf: T => String, batchOf: T => Long) {
  private val items = mutable.LinkedHashMap.empty[Long, T]

  def add(accumulatorId: Long, item: T): Unit = {
    items(accumulatorId) = item
    val ofQuery = items.filter { case (_, other) => queryOf(other) == queryOf(item) }
    val old =
      if (queryOf(item).isEmpty) ofQuery.keys.toSeq.dropRight(most)
      else {
        val dropped = ofQuery.values.map(batchOf).toSeq.distinct.dropRight(most).toSet
        ofQuery.collect { case (id, other) if dropped(batchOf(other)) => id }.toSeq
      }
    old.foreach(items.remove)
  }

  def get(accumulatorId: Long): Option[T] = items.get(accumulatorId)

  /** The items of a query, oldest first. */
  def of(queryId: String): Seq[T] = items.values.filter(queryOf(_) == queryId).toSeq

  def forget(queryId: String): Unit = items.filterInPlace((_, item) => queryOf(item) != queryId)
}
