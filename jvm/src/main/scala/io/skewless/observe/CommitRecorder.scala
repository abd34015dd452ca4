package io.skewless.observe

import java.util.UUID

import scala.collection.mutable

/** Which batches of which query are committed, and how long each took. Driver; not thread-safe. */
private[observe] final class CommitRecorder(retainedBatches: Int) {
  private val batchMs = mutable.HashMap.empty[String, Map[Long, Long]].withDefaultValue(Map.empty)
  private val newestOfRun = mutable.HashMap.empty[UUID, Long]

  /** Whether that is news: Spark may report a batch again. */
  def record(queryId: String, run: UUID, batchId: Long, millis: Long): Boolean = {
    val known = batchMs(queryId) + (batchId -> millis)
    batchMs(queryId) =
      if (known.size <= 2 * retainedBatches) known else known.toSeq.sorted.takeRight(retainedBatches).toMap
    val isNew = newestOfRun.getOrElse(run, -1L) < batchId
    if (isNew) newestOfRun(run) = batchId
    isNew
  }

  /** -1 before the first. */
  def newest(queryId: String): Long = batchMs(queryId).keys.maxOption.getOrElse(-1L)

  /** How long a batch took, if it is committed. */
  def millisOf(queryId: String, batchId: Long): Option[Long] = batchMs(queryId).get(batchId)

  def ended(run: UUID): Unit = { newestOfRun.remove(run); () }
  def forget(queryId: String): Unit = { batchMs.remove(queryId); () }
}
