// In Spark's package because the logs of a checkpoint are Spark-private.
package org.apache.spark.sql.skewless.checkpoint

import java.io.{InputStream, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID

import scala.util.Using
import scala.util.control.NonFatal

import io.skewless.SkewlessException
import org.apache.hadoop.fs.{ChecksumFileSystem, Path}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.{
  CheckpointFileManager,
  CommitLog,
  OffsetSeqBase,
  OffsetSeqLog
}
import org.apache.spark.sql.execution.streaming.runtime.StreamMetadata
import org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionUtils
import org.apache.spark.sql.execution.streaming.utils.StreamingUtils
import org.apache.spark.sql.skewless.query.{Handover, PinLog}

/**
 * The checkpoint of a query that has stopped: its logs, and the changes that are made to their newest entry
 * while nobody runs the query. Driver.
 */
private[checkpoint] final class StoppedCheckpoint(val session: SparkSession, location: String) {
  val hadoop = session.sessionState.newHadoopConf()
  val root = new Path(StreamingUtils.resolvedCheckpointLocation(hadoop, location))
  private val files = CheckpointFileManager.create(root, hadoop)
  private val offsetsDir = new Path(root, "offsets")
  private val keptDir = new Path(root, "_skewless/kept")
  val stateDir = new Path(root, "state")

  if (!files.exists(new Path(root, "metadata")) || !files.exists(offsetsDir))
    refuse("it holds no query that has run. Give the folder that is the query's checkpointLocation.")

  /** Anew each time: a log remembers what it has read. */
  def offsets: EntryLog = new EntryLog(session, offsetsDir)
  def commits: CommitLog = new CommitLog(session, new Path(root, "commits").toString, false)

  val newest: Long = offsets.getLatestBatchId().getOrElse(refuse("no batch of it has begun."))
  val newestCommit: Long = commits.getLatestBatchId().getOrElse(-1L)
  val isCommitted: Boolean = newestCommit >= newest

  /** Whether the newest entry is one that Spark's offline repartition has begun and not committed. */
  val isRepartition: Boolean =
    !isCommitted && newest > 0 && OfflineStateRepartitionUtils.isRepartitionBatch(newest, offsets)

  val isStateful: Boolean = files.exists(stateDir)

  def entry(batch: Long): OffsetSeqBase =
    offsets.get(batch).getOrElse(refuse(s"$offsetsDir/$batch is missing."))

  def provider(batch: Long): String = entry(batch).metadataOpt
    .flatMap(Handover.providerOf)
    .getOrElse(
      refuse(s"$offsetsDir/$batch names no state store provider: a Spark too old for this release wrote it.")
    )

  /** The format of the state's files, as the query ran; Spark's offline tools take it from the session. */
  def formatVersion: Int =
    if (commits.get(newestCommit).flatMap(_.stateUniqueIds).exists(_.nonEmpty)) 2 else 1

  lazy val pins: PinLog = new PinLog(root, queryId, session, stateful = isStateful)

  private def queryId: UUID = StreamMetadata
    .read(new Path(root, "metadata"), hadoop)
    .fold(refuse("its metadata cannot be read."))(metadata => UUID.fromString(metadata.id))

  def refuse(why: String): Nothing = throw SkewlessException.checkpoint(s"$root: $why")

  // -- changing the newest entry --------------------------------------------------------------------------

  /** Puts an entry in the place of the newest one, whole or not at all. The old one is kept: `kept`. */
  def replaceNewest(by: OffsetSeqBase): Path = {
    val kept = keepNewest()
    writeNewest(offsets.write(by, _))
    kept
  }

  /** Takes the newest entry away. It is kept: `kept`. */
  def removeNewest(): Path = {
    val kept = keepNewest()
    deleteChecksum()
    files.delete(newestFile)
    kept
  }

  /** The entry that was in the place of the newest one, if one was. */
  def kept: Option[OffsetSeqBase] =
    Option.when(files.exists(keptFile))(Using.resource(files.open(keptFile))(offsets.read(_)))

  /** Keeps a line of text beside the entries; whole or not at all. */
  def keep(name: String, text: String): Unit = {
    if (!files.exists(keptDir)) files.mkdirs(keptDir)
    write(new Path(keptDir, name), _.write(text.getBytes(UTF_8)))
  }

  /** What `keep` has kept. */
  def noted(name: String): Option[String] = {
    val file = new Path(keptDir, name)
    Option.when(files.exists(file))(
      Using.resource(files.open(file))(in => new String(in.readAllBytes(), UTF_8))
    )
  }

  private def newestFile = new Path(offsetsDir, newest.toString)
  private def keptFile = new Path(keptDir, newest.toString)

  private def keepNewest(): Path = {
    val bytes = Using.resource(files.open(newestFile))(_.readAllBytes())
    if (!files.exists(keptDir)) files.mkdirs(keptDir)
    write(keptFile, _.write(bytes))
    keptFile
  }

  /**
   * The old checksum goes first: a file without one is read unchecked, a new file with the old one cannot be
   * read.
   */
  private def writeNewest(body: OutputStream => Unit): Unit = {
    deleteChecksum()
    write(newestFile, body)
  }

  private def deleteChecksum(): Unit = newestFile.getFileSystem(hadoop) match {
    case local: ChecksumFileSystem =>
      local.getRawFileSystem.delete(local.getChecksumFile(newestFile), false)
      ()
    case _ =>
  }

  private def write(path: Path, body: OutputStream => Unit): Unit = {
    val out = files.createAtomic(path, overwriteIfPossible = true)
    try {
      body(out)
      out.close()
    } catch {
      case NonFatal(e) =>
        out.cancel()
        throw e
    }
  }
}

/** Spark's offset log, whose entries can be written to and read from any file. */
private[checkpoint] final class EntryLog(session: SparkSession, path: Path)
    extends OffsetSeqLog(session, path.toString, false) {
  def write(entry: OffsetSeqBase, out: OutputStream): Unit = serialize(entry, out)
  def read(in: InputStream): OffsetSeqBase = deserialize(in)
}
