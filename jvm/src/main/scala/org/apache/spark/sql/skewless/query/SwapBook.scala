// In Spark's package because it reads StreamExecution, which Spark keeps private.
package org.apache.spark.sql.skewless.query

import io.skewless.moves.{Chunk, InFile}
import io.skewless.observe.QueryMetrics
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution

/**
 * What the swap of a committed batch did.
 *
 * @param bytes      that travelled
 * @param stateBytes of the keys and values that moved
 * @param files      scratch files that they travelled in; none if tasks carried them
 */
final case class SwapRecord(
    batch: Long,
    epoch: Long,
    fromEpoch: Long,
    keyHashes: Int,
    rows: Long,
    bytes: Long,
    stateBytes: Long,
    sources: Seq[Int],
    targets: Seq[Int],
    exportMs: Long,
    batchMs: Long,
    files: Int
) {
  def json: String = PinLog.toJson(this)
}

/**
 * The book of a run's swaps: an export is entered when it has run, and becomes a swap when its batch is
 * committed. Written to the checkpoint, the metrics and the log then, for people; nothing depends on it.
 */
final class SwapBook private[query] (
    execution: StreamExecution,
    tables: QueryTables,
    metrics: => Option[QueryMetrics],
    attempt: Attempt
) extends Logging {
  private var exports = Map.empty[Long, SwapRecord]
  private var swaps = Seq.empty[SwapRecord]

  /** The committed swaps of this run, oldest first. */
  def records: Seq[SwapRecord] = synchronized(swaps)

  /**
   * A stage's state has been exported; a batch may have several such stages. Called by `StateSwap`, on the
   * thread that runs the batch.
   */
  def exported(batchId: Long, keyHashes: Int, moved: Seq[Chunk], millis: Long): Unit = synchronized {
    val earlier = exports.get(batchId)
    def all(of: Chunk => Int, before: SwapRecord => Seq[Int]) =
      (earlier.toSeq.flatMap(before) ++ moved.map(of)).distinct.sorted
    exports += batchId -> SwapRecord(
      batchId,
      epochAt(batchId),
      epochAt(batchId - 1),
      keyHashes,
      moved.map(_.rows.toLong).sum + earlier.fold(0L)(_.rows),
      moved.map(_.bytes.toLong).sum + earlier.fold(0L)(_.bytes),
      moved.map(_.stateBytes).sum + earlier.fold(0L)(_.stateBytes),
      all(_.source, _.sources),
      all(_.target, _.targets).filter(_ >= 0),
      millis + earlier.fold(0L)(_.exportMs),
      batchMs = -1,
      files =
        moved.map(_.place).collect { case InFile(file, _) => file }.distinct.size + earlier.fold(0)(_.files)
    )
  }

  private def epochAt(batchId: Long): Long = tables.tableAt(batchId).fold(0L)(_.epoch)

  /** Files are written and deleted without the lock, which the export of the next batch needs. */
  private[query] def committed(batchId: Long, batchMs: Long): Unit = {
    attempt("keep metrics")(showTable(batchId))
    entered(batchId, batchMs).foreach { swap =>
      logInfo(
        s"query ${execution.id}: batch $batchId went from epoch ${swap.fromEpoch} to ${swap.epoch}, moving " +
          s"${swap.rows} state rows (${swap.bytes} bytes in ${swap.files} files) of ${swap.sources.size} " +
          s"partitions; export ${swap.exportMs} ms, batch $batchMs ms"
      )
      metrics.foreach(_.moved(execution.runId, swap.bytes, swap.exportMs))
      tables.swapped(swap)
    }
  }

  private def entered(batchId: Long, batchMs: Long): Option[SwapRecord] = synchronized {
    val swap = exports.get(batchId).map(_.copy(batchMs = batchMs))
    exports -= batchId
    swaps = (swaps ++ swap).takeRight(SwapBook.Remembered)
    swap
  }

  private def hasMoved(batchId: Long): Boolean = synchronized(exports.contains(batchId))

  private def showTable(batchId: Long): Unit = {
    val table = tables.tableAt(batchId)
    val epoch = table.fold(0L)(_.epoch)
    val isSwap = epoch != epochAt(batchId - 1)
    metrics.foreach(_.committed(execution.runId, epoch, table.fold(0)(_.size), isSwap))
    if (isSwap && !hasMoved(batchId))
      logInfo(s"query ${execution.id}: batch $batchId went to epoch $epoch; no state moved")
  }
}

private[skewless] object SwapBook {
  val Remembered = 100
}
