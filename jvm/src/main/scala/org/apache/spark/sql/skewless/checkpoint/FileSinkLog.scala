// In Spark's package because the log of the file sink is Spark-private.
package org.apache.spark.sql.skewless.checkpoint

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.sinks.{FileStreamSink, FileStreamSinkLog}

/**
 * The log in which Spark's file sink notes the files of each batch, `DIR/_spark_metadata`. It must have every
 * batch, or nobody can read `DIR` any more. A batch that an offline tool takes has no files, so its entry is
 * empty.
 *
 * Separate from the checkpoint because it lies elsewhere, and no file of the checkpoint names it: `note` keeps
 * where it is, so that whoever goes on after a crash finds it again.
 */
private[checkpoint] final class FileSinkLog(checkpoint: StoppedCheckpoint, val dir: String) {
  import checkpoint.{hadoop, refuse, session}

  private val fs = new Path(dir).getFileSystem(hadoop)
  private val path =
    FileStreamSink.getMetadataLogPath(fs, fs.makeQualified(new Path(dir)), session.sessionState.conf)

  if (!fs.exists(path))
    refuse(
      s"$dir holds no _spark_metadata, so Spark's file sink does not write there. Give the folder that the " +
        "query's start(DIR) names. Nothing was changed."
    )

  /** Anew each time: a log remembers what it has read. */
  private def log = new FileStreamSinkLog(FileStreamSinkLog.VERSION, session, path.toString, None)

  def newest: Long = log.getLatestBatchId().getOrElse(-1L)

  /** The sink must be this query's: both logs end with the same batch. */
  def check(last: Long, isBegun: Boolean): Unit =
    if (newest != last && !(isBegun && newest == last + 1))
      refuse(
        s"its newest batch is $last, and that of $path is $newest: $dir is not what this query writes, or " +
          "not all of it is there. Nothing was changed."
      )

  /** Notes that this batch has no files. Again does nothing. */
  def add(batch: Long): Unit = if (newest < batch && !log.add(batch, Array.empty))
    refuse(s"another driver has written batch $batch to $path. Stop it, and look what it did.")
}

private[checkpoint] object FileSinkLog {

  /** The sink that was named, or else the one that was noted when the same batch was begun before. */
  def of(checkpoint: StoppedCheckpoint, named: Option[String], batch: Long): Option[FileSinkLog] =
    named.orElse(checkpoint.noted(note(batch))).map(new FileSinkLog(checkpoint, _))

  /** To be kept before the batch is begun. */
  def remember(checkpoint: StoppedCheckpoint, sink: FileSinkLog, batch: Long): Unit =
    checkpoint.keep(note(batch), sink.dir)

  private def note(batch: Long) = s"file-sink-$batch"
}
