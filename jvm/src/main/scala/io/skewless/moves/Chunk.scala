package io.skewless.moves

import java.io.{ByteArrayOutputStream, DataOutputStream, FileNotFoundException, IOException}
import java.nio.ByteBuffer
import java.util.zip.CRC32C

import scala.collection.mutable
import scala.util.Using

import io.skewless.SkewlessException
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/**
 * One column family of one store of one operator.
 *
 * @param isList whether a value is a list of elements, see `ListValue`
 */
final case class StateColumn(operatorId: Long, storeName: String, family: String, isList: Boolean)

/**
 * Where rows of an export go.
 *
 * @param target  -1: nowhere, they are only removed
 * @param keeps   whether the source keeps them: a copy
 * @param merges  whether the target may have rows of the same key, which these are added to
 */
final case class Way(target: Int, keeps: Boolean = false, merges: Boolean = false)

/** Where the bytes of a chunk are. */
sealed trait Place

/** In a scratch file, from `offset` on. */
final case class InFile(file: String, offset: Long) extends Place

/** With the chunk: in the result of the task that read them, and in the tasks that they concern. */
final class Carried(val bytes: Array[Byte]) extends Place with Serializable

/**
 * A stretch of what one partition gives: rows of one column family that move to one other partition. Rows are
 * length, key, length, value; lengths as in protobuf, seven bits a byte.
 *
 * @param isList whether a value is a list of elements, see `ListValue`
 * @param keeps, merges  see `Way`
 * @param stateBytes keys and values alone, without their lengths
 * @param crc    CRC-32C of the stretch
 */
final case class Chunk(
    place: Place,
    operatorId: Long,
    storeName: String,
    family: String,
    isList: Boolean,
    source: Int,
    target: Int,
    keeps: Boolean,
    merges: Boolean,
    bytes: Int,
    rows: Int,
    stateBytes: Long,
    crc: Long
)

/**
 * Takes what one partition gives: rows are gathered by (store, family, way). While they are few, their
 * chunks carry them. Else they go to one scratch file, a chunk at a time, so memory stays within
 * `budgetBytes` however much moves. The file is named by nothing but the chunks that its task returns.
 *
 * @param carriedBytes most bytes that the chunks carry; with more, all of them are in the file
 */
final class ChunkWriter(
    path: Path,
    source: Int,
    conf: Configuration,
    carriedBytes: Int,
    budgetBytes: Long = 64L << 20
) {
  private final class Open(val column: StateColumn, val way: Way) {
    val bytes = new ByteArrayOutputStream(1 << 10)
    val out = new DataOutputStream(bytes)
    var rows = 0
    var stateBytes = 0L
  }

  private lazy val out = path.getFileSystem(conf).create(path, false)
  private val open = mutable.LinkedHashMap.empty[(StateColumn, Way), Open]
  private val done = mutable.ArrayBuffer.empty[Chunk]
  private var held = 0L
  private var written = 0L

  def add(column: StateColumn, way: Way, key: Array[Byte], value: Array[Byte]): Unit = {
    val chunk = open.getOrElseUpdate((column, way), new Open(column, way))
    val before = chunk.bytes.size
    Seq(key, value).foreach { part =>
      Varint.write(chunk.out, part.length)
      chunk.out.write(part)
    }
    chunk.rows += 1
    chunk.stateBytes += key.length + value.length
    held += chunk.bytes.size - before
    if (held > budgetBytes || chunk.bytes.size > ChunkWriter.ChunkBytes)
      write(open.values.maxBy(_.bytes.size))
  }

  private def write(chunk: Open): Unit = if (chunk.rows > 0) {
    val (bytes, place) = (chunk.bytes.toByteArray, InFile(path.toString, written))
    out.write(bytes)
    written += bytes.length
    enter(chunk, bytes, place)
  }

  private def enter(chunk: Open, bytes: Array[Byte], place: Place): Unit = {
    done += Chunk(
      place,
      chunk.column.operatorId,
      chunk.column.storeName,
      chunk.column.family,
      chunk.column.isList,
      source,
      chunk.way.target,
      chunk.way.keeps,
      chunk.way.merges,
      bytes.length,
      chunk.rows,
      chunk.stateBytes,
      ChunkWriter.crc(bytes)
    )
    held -= bytes.length
    chunk.bytes.reset()
    chunk.rows = 0
    chunk.stateBytes = 0
  }

  /** All chunks; no file is made when little or nothing moves. */
  def close(): Seq[Chunk] = {
    if (done.isEmpty && held <= carriedBytes) open.values.foreach(carry)
    else {
      open.values.foreach(write)
      out.close()
    }
    done.toSeq
  }

  private def carry(chunk: Open): Unit = {
    val bytes = chunk.bytes.toByteArray
    enter(chunk, bytes, new Carried(bytes))
  }

  def abort(): Unit = if (written > 0) {
    try out.close()
    finally path.getFileSystem(conf).delete(path, false)
  }
}

object ChunkWriter {
  val ChunkBytes: Int = 4 << 20

  def crc(bytes: Array[Byte]): Long = {
    val crc = new CRC32C
    crc.update(bytes, 0, bytes.length)
    crc.getValue
  }
}

object ChunkReader {
  private type Row = (Chunk, Array[Byte], Array[Byte]) => Unit

  /**
   * Calls `row(chunk, key, value)` for each row of the chunks. Bytes that are missing or not as they were
   * written are a typed error.
   */
  def foreach(chunks: Seq[Chunk], conf: Configuration)(row: Row): Unit = {
    val (carried, inFiles) = chunks.partitionMap { chunk =>
      chunk.place match {
        case carried: Carried => Left(chunk -> carried.bytes)
        case at: InFile => Right(chunk -> at)
      }
    }
    carried.foreach { case (chunk, bytes) => rows(chunk, bytes, s"partition ${chunk.source}'s part", row) }
    inFiles.groupBy(_._2.file).toSeq.sortBy(_._1).foreach { case (file, ofFile) =>
      read(file, ofFile.sortBy(_._2.offset), conf, row)
    }
  }

  private def read(file: String, chunks: Seq[(Chunk, InFile)], conf: Configuration, row: Row): Unit = {
    val path = new Path(file)
    try
      Using.resource(path.getFileSystem(conf).open(path)) { in =>
        chunks.foreach { case (chunk, at) =>
          val bytes = new Array[Byte](chunk.bytes)
          in.readFully(at.offset, bytes)
          rows(chunk, bytes, file, row)
        }
      }
    catch {
      case e: FileNotFoundException => throw damaged(file, "it is missing", e)
      case e: IOException => throw damaged(file, e.toString, e)
    }
  }

  private def rows(chunk: Chunk, bytes: Array[Byte], where: String, row: Row): Unit = {
    if (ChunkWriter.crc(bytes) != chunk.crc) throw damaged(where, "its bytes are not those that were written")
    val buffer = ByteBuffer.wrap(bytes)
    (0 until chunk.rows).foreach(_ => row(chunk, next(buffer), next(buffer)))
    if (buffer.hasRemaining) throw damaged(where, s"bytes are left over after ${chunk.rows} rows")
  }

  private def next(buffer: ByteBuffer): Array[Byte] = {
    val part = new Array[Byte](Varint.read(buffer))
    buffer.get(part)
    part
  }

  private def damaged(what: String, why: String, cause: Throwable = null): SkewlessException =
    SkewlessException.checkpoint(
      s"$what, state on its way to another partition, cannot be read: $why. Nothing was committed; start " +
        "the query again, and the " +
        "batch exports the state anew.",
      cause
    )
}
