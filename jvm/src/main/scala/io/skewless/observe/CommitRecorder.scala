package io.skewless.observe

import java.util.UUID

import scala.collection.mutable

/** When a batch was committed, as milliseconds of the epoch, and how long it took. */
private[observe] final case class Commit(at: Long, millis: Long)

/** Which batches of which query are committed. Driver; not thread-safe. */
private[observe] final class CommitRecorder(retainedBatches: Int) {
  private val commits = mutable.HashMap.empty[String, Map[Long, Commit]].withDefaultValue(Map.empty)
  private val snapshots = mutable.HashMap.empty[String, Map[Int, Long]].withDefaultValue(Map.empty)
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

  /**
   * Spark names the stores with the oldest snapshots among the custom metrics of an operator; what it named
   * once stands until it names it again.
   */
  def snapshotsTold(queryId: String, metrics: Iterable[(String, Long)]): Unit = {
    val told = metrics.collect { case (CommitRecorder.Snapshot(partition), version) =>
      partition.toInt -> version
    }
    val oldest = told.groupBy(_._1).map { case (partition, stores) => partition -> stores.map(_._2).min }
    if (oldest.nonEmpty) snapshots(queryId) = snapshots(queryId) ++ oldest
  }

  def snapshotsOf(queryId: String): Map[Int, Long] = snapshots(queryId)

  /** None if the batch is not committed. */
  def of(queryId: String, batchId: Long): Option[Commit] = commits(queryId).get(batchId)

  /** Whether this run has committed a batch. */
  def has(run: UUID): Boolean = newestOfRun.contains(run)

  def ended(run: UUID): Unit = { newestOfRun.remove(run); () }
  def forget(queryId: String): Unit = { commits.remove(queryId); snapshots.remove(queryId); () }
}

private object CommitRecorder {
  private val Snapshot = "SnapshotLastUploaded\\.partition_(\\d+)_.*".r
}
