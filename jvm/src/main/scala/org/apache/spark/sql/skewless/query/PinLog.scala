// In Spark's package because it writes through Spark's own checkpoint file manager, as Spark's logs do.
package org.apache.spark.sql.skewless.query

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets.UTF_8
import java.util.{EnumSet, UUID}
import java.util.concurrent.{Callable, ExecutionException, Future => Pending}

import scala.collection.immutable.TreeMap
import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}
import scala.util.control.NonFatal

import io.skewless.SkewlessException
import io.skewless.table.{Table, TableCodec}
import org.apache.hadoop.fs.{
  CreateFlag,
  FSDataOutputStream,
  FileAlreadyExistsException,
  FileContext,
  Path,
  UnsupportedFileSystemException
}
import org.apache.hadoop.fs.Options.{ChecksumOpt, CreateOpts}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.util.ThreadUtils
import org.json4s._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

/** From batch `batch` on, until the next pin, the query runs under table `epoch`. */
final case class Pin(batch: Long, epoch: Long, digest: String, partitions: Int, queryId: String)

/**
 * The durable tables and pins of one query, under its checkpoint:
 * {{{
 *   <checkpoint>/_skewless/tables/<epoch>   TableCodec's bytes
 *   <checkpoint>/_skewless/pins/<batch>     JSON: {"format":1, "batch":..., "epoch":..., "digest":...,
 * "partitions":..., "queryId":...}
 *   <checkpoint>/_skewless/swaps/<batch>    JSON: what the batch's swap moved, for people; nothing depends on
 * it
 *   <checkpoint>/_skewless/moves/<batch>-<run>/   state on its way to another partition: scratch of one run
 *   <checkpoint>/state/skewless-<epoch>     empty: the newest epoch that has placed the state, said beside
 * the state itself
 * }}}
 * Tables and pins are never overwritten. A pin appears whole (temporary file, rename), and after its table
 * has been read back, so a crash leaves at most a table, or a part of one, that nothing names. Anything
 * unreadable, missing or contradictory stops the query with an error that names the file: the log never
 * guesses. `QueryTables` holds the lock for all but `settle` and what is done after a batch (`record`,
 * `clean`).
 */
private[skewless] final class PinLog(
    checkpoint: Path,
    queryId: UUID,
    session: SparkSession,
    stateful: Boolean = false
) extends Logging {
  private val home = new Path(checkpoint, "_skewless")
  private val tablesDir = new Path(home, "tables")
  private val pinsDir = new Path(home, "pins")
  private val swapsDir = new Path(home, "swaps")
  private val movesDir = new Path(home, "moves")
  private val stateDir = new Path(checkpoint, "state")
  private val hadoop = session.sessionState.newHadoopConf()
  private val files = CheckpointFileManager.create(checkpoint, hadoop)
  @volatile private var witnessing: Option[Pending[Unit]] = None
  private var lastEpoch = numbers(tablesDir).lastOption.getOrElse(0L)
  private var pins = TreeMap(numbers(pinsDir).map(batch => batch -> readPin(batch)): _*)
  private var cached = Map.empty[Long, Table]
  if (stateful) {
    checkWitness()
    // a driver may have died between a pin and its witness
    pins.lastOption.map(_._2.epoch).filterNot(witnesses.contains(_)).foreach(witness)
  }

  def latest: Option[Table] = pins.lastOption.map { case (_, pin) => tableOf(pin) }

  /** The batch of the newest pin; -1 if there is none. */
  def newestBatch: Long = pins.lastOption.fold(-1L)(_._1)

  def tableAt(batch: Long): Option[Table] =
    pins.rangeTo(batch).lastOption.map { case (_, pin) => tableOf(pin) }

  /**
   * A pin of `batch` that is not from this log is another driver's, and the batch must not run without its
   * table.
   */
  def checkAlone(batch: Long): Unit = {
    val path = new Path(pinsDir, batch.toString)
    if (!pins.contains(batch) && files.exists(path))
      throw SkewlessException.checkpoint(
        s"$path was written by another driver, which works on this checkpoint too, or by a publish of this " +
          "one that failed half-way. " +
          "Stop the other driver if there is one, and start the query again."
      )
  }

  /**
   * Writes the table under the next epoch and pins the first batch from `notBefore` on that no pin names:
   * (epoch, batch).
   */
  def add(table: Table, notBefore: Long): (Long, Long) = {
    val batch = pins.lastOption.fold(notBefore)(last => notBefore.max(last._1 + 1))
    val epoch = lastEpoch + 1
    val bytes = TableCodec.encode(table.withEpoch(epoch))
    val pin = Pin(batch, epoch, TableCodec.digest(bytes), table.partitions, queryId.toString)
    lastEpoch = epoch // a failed write must not leave the number to a second table
    val stored = write(pin, bytes)
    pins = pins.updated(batch, pin)
    cached = Map(epoch -> stored) ++ cached.filter(_._1 == epoch - 1)
    if (stateful) witness(epoch)
    (epoch, batch)
  }

  /** The table as it was read back. The pin's temporary file is made meanwhile, and renamed at the end. */
  private def write(pin: Pin, bytes: Array[Byte]): Table = {
    val path = mkdirs(new Path(pinsDir, pin.batch.toString))
    val open = PinLog.inBackground(files.createAtomic(path, overwriteIfPossible = false))
    try {
      place(mkdirs(new Path(tablesDir, pin.epoch.toString)), bytes)
      val stored = readTable(pin)
      refuseOther(path) {
        val out = PinLog.result(open)
        out.write(PinLog.toJson(pin).getBytes(UTF_8))
        out.close()
      }
      stored
    } catch {
      case e: Throwable =>
        Try(PinLog.result(open)).foreach(_.cancel())
        throw e
    }
  }

  private def place(path: Path, bytes: Array[Byte]): Unit =
    refuseOther(path)(Using.resource(create(path, CreateFlag.CREATE))(_.write(bytes)))

  /** Without a rename; without the checksum file that a local file system keeps beside each file. */
  private def create(path: Path, flags: CreateFlag*): FSDataOutputStream = {
    val unchecked = CreateOpts.checksumParam(ChecksumOpt.createDisabled())
    try FileContext.getFileContext(path.toUri, hadoop).create(path, EnumSet.copyOf(flags.asJava), unchecked)
    catch {
      case _: UnsupportedFileSystemException =>
        path.getFileSystem(hadoop).create(path, flags.contains(CreateFlag.OVERWRITE))
    }
  }

  private def refuseOther(path: Path)(write: => Unit): Unit =
    try write
    catch {
      case e: FileAlreadyExistsException =>
        throw SkewlessException.checkpoint(
          s"$path exists already: another driver works on this checkpoint. Stop one of the two; the old " +
            "table stays in force.",
          e
        )
    }

  /**
   * A folder of pins can be lost while the state it placed stays. Written after the pin, so a crash leaves it
   * behind, never ahead; beside all else, until `settle` waits for it.
   */
  private def witness(epoch: Long): Unit = {
    val before = witnessing
    witnessing = Some(PinLog.inBackground {
      try {
        before.foreach(PinLog.result(_))
        writeWitness(epoch)
      } catch {
        case NonFatal(e) =>
          logWarning(s"no word of epoch $epoch under $stateDir: lost pins would not be noticed", e)
      }
    })
  }

  private def writeWitness(epoch: Long): Unit = {
    val older = witnesses
    val path = mkdirs(new Path(stateDir, PinLog.Witness + epoch))
    create(path, CreateFlag.CREATE, CreateFlag.OVERWRITE).close()
    older.filter(_ < epoch).foreach(old => files.delete(new Path(stateDir, PinLog.Witness + old)))
  }

  /** Waits until the state says by itself which table places it. Thread-safe, and without the lock. */
  def settle(): Unit = witnessing.foreach(PinLog.result(_))

  private def witnesses: Seq[Long] =
    if (!files.exists(stateDir)) Nil
    else
      files
        .list(stateDir)
        .toSeq
        .map(_.getPath.getName)
        .filter(_.startsWith(PinLog.Witness))
        .map(_.drop(PinLog.Witness.length).toLong)

  private def checkWitness(): Unit =
    witnesses.maxOption.filter(_ > pins.lastOption.fold(0L)(_._2.epoch)).foreach { epoch =>
      throw damaged(
        pinsDir,
        s"the state of this checkpoint lies by epoch $epoch, and the pin that names it is missing"
      )
    }

  /**
   * Deletes what no batch from `oldest` on can ask for: it needs its own table and the one before. Oldest
   * files go first and a pin before its table, so a crash in between leaves a whole chain and at most a table
   * that nothing names.
   */
  def purge(oldest: Long): Unit = pins.rangeTo(oldest - 1).lastOption.foreach { case (first, kept) =>
    pins.rangeUntil(first).keys.foreach { batch =>
      files.delete(new Path(pinsDir, batch.toString))
      pins -= batch
    }
    numbers(tablesDir)
      .takeWhile(_ < kept.epoch)
      .foreach(epoch => files.delete(new Path(tablesDir, epoch.toString)))
    numbers(swapsDir).takeWhile(_ < first).foreach(batch => files.delete(new Path(swapsDir, batch.toString)))
  }

  /** Writes what a swap did. Only for people: a record that cannot be written is no reason to stop. */
  def record(swap: SwapRecord): Unit = {
    val out = files.createAtomic(mkdirs(new Path(swapsDir, swap.batch.toString)), overwriteIfPossible = true)
    out.write(PinLog.toJson(swap).getBytes(UTF_8))
    out.close()
  }

  /**
   * Deletes a run's own scratch of batches before `before`: another run may be at work by the time that the
   * news comes.
   */
  def clean(run: UUID, before: Long): Unit =
    deleteScratch(name => name.endsWith(s"-$run") && name.takeWhile(_ != '-').toLong < before)

  /** Deletes what earlier runs left. Only for a run that plans batches: all others are over then. */
  def cleanOthers(run: UUID): Unit = deleteScratch(name => !name.endsWith(s"-$run"))

  private def deleteScratch(chosen: String => Boolean): Unit =
    if (files.exists(movesDir))
      files.list(movesDir).toSeq.map(_.getPath).filter(p => chosen(p.getName)).foreach(files.delete)

  private def tableOf(pin: Pin): Table = cached.getOrElse(
    pin.epoch, {
      val table = readTable(pin)
      cached += pin.epoch -> table
      table
    }
  )

  private def readTable(pin: Pin): Table = {
    val path = new Path(tablesDir, pin.epoch.toString)
    val bytes = read(path, TableCodec.MaxBodyBytes + TableCodec.HeaderBytes)
    val table =
      try TableCodec.decode(bytes)
      catch { case e: SkewlessException => throw damaged(path, e.getMessage, e) }
    if (
      TableCodec.digest(bytes) != pin.digest || table.epoch != pin.epoch || table.partitions != pin.partitions
    )
      throw damaged(path, s"it is not the table that the pin of batch ${pin.batch} names")
    table
  }

  private def readPin(batch: Long): Pin = {
    val path = new Path(pinsDir, batch.toString)
    val pin =
      try PinLog.fromJson(new String(read(path, PinLog.MaxPinBytes), UTF_8))
      catch { case e: SkewlessException if e.code == "TableError" => throw damaged(path, e.getMessage, e) }
    if (pin.batch != batch) throw damaged(path, s"it says that it pins batch ${pin.batch}")
    if (pin.queryId != queryId.toString)
      throw damaged(path, s"it belongs to query ${pin.queryId}, the checkpoint to query $queryId")
    pin
  }

  private def numbers(dir: Path): Seq[Long] =
    if (!files.exists(dir)) Nil
    else files.list(dir).toSeq.map(_.getPath.getName).filter(_.matches("[0-9]{1,18}")).map(_.toLong).sorted

  private def read(path: Path, maxBytes: Int): Array[Byte] =
    try
      Using.resource(files.open(path)) { in =>
        val bytes = in.readNBytes(maxBytes + 1)
        if (bytes.length > maxBytes) throw damaged(path, s"it has more than $maxBytes bytes")
        bytes
      }
    catch { case e: FileNotFoundException => throw damaged(path, "it is missing", e) }

  private def mkdirs(path: Path): Path = {
    if (!files.exists(path.getParent)) files.mkdirs(path.getParent)
    path
  }

  private def damaged(path: Path, why: String, cause: Throwable = null): SkewlessException =
    SkewlessException.checkpoint(
      s"$path cannot be trusted: ${why.stripSuffix(".")}. The query stops rather than guess how its rows " +
        "were routed. Restore the file from a copy " +
        "of the checkpoint.",
      cause
    )
}

private[skewless] object PinLog {

  /** Of our own: user code may keep the threads of a common pool busy, and a batch waits for these. */
  private lazy val background = ThreadUtils.newDaemonCachedThreadPool("skewless-checkpoint", 8)

  private def inBackground[A](work: => A): Pending[A] = background.submit(new Callable[A] {
    override def call(): A = work
  })

  private def result[A](pending: Pending[A]): A =
    try pending.get()
    catch { case e: ExecutionException => throw e.getCause }

  val Witness = "skewless-"

  /** The folder of one run's and batch's export files. */
  def scratch(batch: RunningBatch): Path =
    new Path(
      batch.execution.resolvedCheckpointRoot,
      s"_skewless/moves/${batch.batchId}-${batch.execution.runId}"
    )

  val MaxPinBytes: Int = 64 << 10
  private val Format = 1
  private implicit val formats: Formats = DefaultFormats

  def toJson(pin: Pin): String = compact(
    render(
      JObject(
        "format" -> JInt(Format),
        "batch" -> JLong(pin.batch),
        "epoch" -> JLong(pin.epoch),
        "digest" -> JString(pin.digest),
        "partitions" -> JInt(pin.partitions),
        "queryId" -> JString(pin.queryId)
      )
    )
  )

  def toJson(swap: SwapRecord): String = compact(
    Extraction.decompose(swap).merge(JObject("format" -> JInt(Format)))
  )

  def fromJson(text: String): Pin =
    try {
      val json = parse(text)
      val format = (json \ "format").extract[Int]
      if (format != Format)
        throw SkewlessException.table(
          s"it is of format $format, this release reads $Format. Use the Skewless that wrote it"
        )
      json.extract[Pin]
    } catch {
      case e: SkewlessException => throw e
      case NonFatal(_) => throw SkewlessException.table("it is not a whole pin")
    }
}
