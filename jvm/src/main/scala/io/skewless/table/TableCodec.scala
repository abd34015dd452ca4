package io.skewless.table

import java.nio.{ByteBuffer, ByteOrder}
import java.security.MessageDigest
import java.util.Arrays

import io.skewless.SkewlessException

/**
 * A table as bytes, the same in `table.py`: magic, format version, body length, SHA-256 of the body; then the
 * body, little endian: epoch, partitions, counts of moves, splits and split targets; move hashes, move
 * targets, split hashes, split widths, split targets. Format 2 adds the rows of each split; it is written
 * only where a split has more than one column. `decode` checks every bound before it takes memory. A digest
 * shows damage, not a forger.
 */
object TableCodec {
  private val PlainVersion = 1
  private val GridVersion = 2
  val HeaderBytes = 48
  val MaxBodyBytes: Int = 256 << 20
  private val CountBytes = 24
  private val Magic = "SKWL".getBytes("US-ASCII")

  def encode(table: Table): Array[Byte] = {
    val widths =
      table.splitOffsets.indices.drop(1).map(i => table.splitOffsets(i) - table.splitOffsets(i - 1)).toArray
    val version = if (table.hasGrids) GridVersion else PlainVersion
    val rows = Seq(table.splitRows).filter(_ => version == GridVersion)
    val arrays =
      Seq(table.moveHashes, table.moveTargets, table.splitHashes, widths, table.splitTargets) ++ rows
    val bodyBytes = CountBytes + 4 * arrays.map(_.length).sum
    val buffer = ByteBuffer.allocate(HeaderBytes + bodyBytes).order(ByteOrder.LITTLE_ENDIAN)
    buffer.put(Magic).putInt(version).putLong(bodyBytes.toLong).position(HeaderBytes)
    buffer.putLong(table.epoch).putInt(table.partitions)
    buffer.putInt(table.moveHashes.length).putInt(table.splitHashes.length).putInt(table.splitTargets.length)
    arrays.foreach(array => array.foreach(buffer.putInt))
    val bytes = buffer.array()
    System.arraycopy(sha256(bytes, HeaderBytes, bodyBytes), 0, bytes, 16, 32)
    bytes
  }

  def decode(bytes: Array[Byte]): Table = {
    val (version, body) = checkedBody(bytes)
    val (epoch, partitions) = (body.getLong(), body.getInt())
    val (moves, splits, targets) = (body.getInt(), body.getInt(), body.getInt())
    val arraysOfSplits = if (version == GridVersion) 3L else 2L
    val expected = 4L * (2L * moves + arraysOfSplits * splits + targets)
    if (moves < 0 || splits < 0 || targets < 0 || expected != body.remaining)
      refuse(
        s"a table of $moves moves, $splits splits and $targets split targets does not take " +
          s"${body.remaining + CountBytes} bytes. " +
          "The bytes are damaged, or were not written by Skewless."
      )
    def ints(count: Int): Array[Int] = Array.fill(count)(body.getInt())
    val (moveHashes, moveTargets, splitHashes) = (ints(moves), ints(moves), ints(splits))
    val widths = ints(splits)
    val offsets = widths.scanLeft(0L)(_ + _)
    if (offsets.last != targets || widths.exists(_ < 2))
      refuse("an entry has an empty target list, or lists do not add up. The bytes are damaged.")
    val splitTargets = ints(targets)
    val rows = if (version == GridVersion) ints(splits) else widths
    if (version == GridVersion && Arrays.equals(rows, widths))
      refuse(
        s"a table of format $GridVersion has no split with columns. The bytes were not written by Skewless."
      )
    Table.create(
      epoch,
      partitions,
      moveHashes,
      moveTargets,
      splitHashes,
      offsets.map(_.toInt),
      splitTargets,
      rows
    )
  }

  /** SHA-256 of the body, in hex: what a pin names a table by. */
  def digest(bytes: Array[Byte]): String = bytes.slice(16, HeaderBytes).map(b => f"$b%02x").mkString

  private def checkedBody(bytes: Array[Byte]): (Int, ByteBuffer) = {
    if (bytes.length < HeaderBytes)
      refuse(s"a table has at least $HeaderBytes bytes, this one ${bytes.length}. The bytes are cut short.")
    if (!Arrays.equals(bytes, 0, 4, Magic, 0, 4))
      refuse("these bytes do not start as a table does. They were not written by Skewless.")
    val header = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)
    val (version, length) = (header.getInt(4), header.getLong(8))
    if (version != PlainVersion && version != GridVersion)
      refuse(
        s"the table is of format $version, this release reads $PlainVersion and $GridVersion. Use the " +
          "Skewless that wrote it."
      )
    if (length < CountBytes || length > MaxBodyBytes || length != bytes.length - HeaderBytes)
      refuse(
        s"the table declares $length bytes but ${bytes.length - HeaderBytes} follow. The bytes are damaged."
      )
    if (!Arrays.equals(sha256(bytes, HeaderBytes, length.toInt), bytes.slice(16, HeaderBytes)))
      refuse("the table's digest does not match its bytes. They were changed after they were written.")
    header.position(HeaderBytes)
    (version, header)
  }

  private def sha256(bytes: Array[Byte], offset: Int, length: Int): Array[Byte] = {
    val digest = MessageDigest.getInstance("SHA-256")
    digest.update(bytes, offset, length)
    digest.digest()
  }

  private def refuse(message: String): Nothing = throw SkewlessException.table(message)
}
