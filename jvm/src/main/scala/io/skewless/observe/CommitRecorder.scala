package io.skewless.observe

import java.util.UUID

import scala.collection.mutable

/** When a batch was committed, as milliseconds of the epoch, and how long it took. */
private[observe] final case class Commit(at: Long, millis: Long)

/** Which batches of which query are committed. Driver; not thread-safe. */
private[observe] final class CommitRecorder(retainedBatches: Int) {
  private val commits = mutable.HashMap.empty[String, Map[Long, Commit]].withDefaultValue(Map.empty)
  private val newestOfRun = mutable.HashMap.empty[UUID, Long]

  /** Whether that is news: Spark may report a batch again. */
  def record(queryId: String, run: UUID, batchId: Long, millis: Long): Boolean = {
    val known = commits(queryId) + (batchId -> Commit(System.currentTimeMillis(), millis))
    commits(queryId) =
      if (known.size <= 2 * retainedBatches) known
      else known.toSeq.sortBy(_._1).takeRight(retainedBatches).toMap
    val isNew = newestOfRun.getOrElse(run, -1L) < batchId
    if (isNew) newestOfRun(run) = batchId
    isNew
  }

  /** -1 before the first. */
  def newest(queryId: String): Long = commits(queryId).keys.maxOption.getOrElse(-1L)

  /** None if the batch is not committed. */
  def of(queryId: String, batchId: Long): Option[Commit] = commits(queryId).get(batchId)

  /** Whether this run has committed a batch. */
  def has(run: UUID): Boolean = newestOfRun.contains(run)

  def ended(run: UUID): Unit = { newestOfRun.remove(run); () }
  def forget(queryId: String): Unit = { commits.remove(queryId); () }
}
