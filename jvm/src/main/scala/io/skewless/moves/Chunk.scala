package io.skewless.moves

import java.io.{ByteArrayOutputStream, DataOutputStream, FileNotFoundException, IOException}
import java.nio.ByteBuffer
import java.util.zip.CRC32C

import scala.collection.mutable

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

/**
 * A stretch of an export file: rows of one column family that move from one partition to another. Rows are
 * length, key, length, value; lengths as in protobuf, seven bits a byte.
 *
 * @param isList whether a value is a list of elements, see `ListValue`
 * @param keeps, merges  see `Way`
 * @param stateBytes keys and values alone, without their lengths
 * @param crc    CRC-32C of the stretch
 */
final case class Chunk(
    file: String,
    operatorId: Long,
    storeName: String,
    family: String,
    isList: Boolean,
    source: Int,
    target: Int,
    keeps: Boolean,
    merges: Boolean,
    offset: Long,
    bytes: Int,
    rows: Int,
    stateBytes: Long,
    crc: Long
)

/**
 * Writes one export file: rows are gathered by (store, family, way) and written a chunk at a time, so
 * memory stays within `budgetBytes` however much moves. The file is scratch: it is named by nothing but the
 * chunks that its task returns.
 */
final class ChunkWriter(
    path: Path,
    source: Int,
    conf: Configuration,
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
      flush(open.values.maxBy(_.bytes.size))
  }

  private def flush(chunk: Open): Unit = if (chunk.rows > 0) {
    val bytes = chunk.bytes.toByteArray
    out.write(bytes)
    done += Chunk(
      path.toString,
      chunk.column.operatorId,
      chunk.column.storeName,
      chunk.column.family,
      chunk.column.isList,
      source,
      chunk.way.target,
      chunk.way.keeps,
      chunk.way.merges,
      written,
      bytes.length,
      chunk.rows,
      chunk.stateBytes,
      ChunkWriter.crc(bytes)
    )
    written += bytes.length
    held -= bytes.length
    chunk.bytes.reset()
    chunk.rows = 0
    chunk.stateBytes = 0
  }

  /** All chunks; no file is made when nothing moves. */
  def close(): Seq[Chunk] = {
    open.values.foreach(flush)
    if (done.nonEmpty) out.close()
    done.toSeq
  }

  def abort(): Unit = if (done.nonEmpty) {
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

  /**
   * Calls `row(chunk, key, value)` for each row of the chunks. A file that is missing or not as it was
   * written is a typed error.
   */
  def foreach(chunks: Seq[Chunk], conf: Configuration)(row: (Chunk, Array[Byte], Array[Byte]) => Unit): Unit =
    chunks.groupBy(_.file).toSeq.sortBy(_._1).foreach { case (file, ofFile) =>
      val path = new Path(file)
      try {
        val in = path.getFileSystem(conf).open(path)
        try
          ofFile.sortBy(_.offset).foreach { chunk =>
            val bytes = new Array[Byte](chunk.bytes)
            in.readFully(chunk.offset, bytes)
            if (ChunkWriter.crc(bytes) != chunk.crc)
              throw damaged(file, "its bytes are not those that were written")
            val buffer = ByteBuffer.wrap(bytes)
            (0 until chunk.rows).foreach(_ => row(chunk, next(buffer), next(buffer)))
            if (buffer.hasRemaining) throw damaged(file, s"bytes are left over after ${chunk.rows} rows")
          }
        finally in.close()
      } catch {
        case e: FileNotFoundException => throw damaged(file, "it is missing", e)
        case e: IOException => throw damaged(file, e.toString, e)
      }
    }

  private def next(buffer: ByteBuffer): Array[Byte] = {
    val part = new Array[Byte](Varint.read(buffer))
    buffer.get(part)
    part
  }

  private def damaged(file: String, why: String, cause: Throwable = null): SkewlessException =
    SkewlessException.checkpoint(
      s"$file, state on its way to another partition, cannot be read: $why. Nothing was committed; start " +
        "the query again, and the " +
        "batch exports the state anew.",
      cause
    )
}
