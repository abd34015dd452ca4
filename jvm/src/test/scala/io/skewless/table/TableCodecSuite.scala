package io.skewless.table

import java.nio.{ByteBuffer, ByteOrder}
import java.security.MessageDigest

import scala.util.Random

import io.skewless.Refusals.refusal
import org.scalatest.funsuite.AnyFunSuite

class TableCodecSuite extends AnyFunSuite {

  private val table =
    Table(8, Map(Int.MinValue -> Seq(3), -5 -> Seq(0, 7), 9 -> Seq(1), 12 -> Seq(2, 4, 6)), epoch = 42)
  private val bytes = TableCodec.encode(table)

  private def refused(says: String)(bytes: Array[Byte]): Unit = {
    val message = refusal("TableError")(TableCodec.decode(bytes)).getMessage
    assert(message.contains(says), message)
  }

  private def littleEndian(bytes: Array[Byte]): ByteBuffer =
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)

  /**
   * Bytes with whatever body, under a header that fits it: only the rules on the content are left to refuse
   * it.
   */
  private def sealedBody(body: Array[Byte], format: Int = 1): Array[Byte] = {
    val buffer = littleEndian(new Array[Byte](48 + body.length))
    buffer
      .put("SKWL".getBytes)
      .putInt(format)
      .putLong(body.length.toLong)
      .put(MessageDigest.getInstance("SHA-256").digest(body))
      .put(body)
    buffer.array()
  }

  private def body(
      epoch: Long,
      partitions: Int,
      moves: Int,
      splits: Int,
      targets: Int,
      ints: Int*
  ): Array[Byte] = {
    val buffer = littleEndian(new Array[Byte](24 + 4 * ints.length))
    buffer.putLong(epoch).putInt(partitions).putInt(moves).putInt(splits).putInt(targets)
    ints.foreach(buffer.putInt)
    buffer.array()
  }

  test("a table comes back from its bytes, at every size") {
    val random = new Random(1)
    for (size <- Seq(0, 1, 2, 17, 1000, 50000); splitShare <- Seq(0.0, 0.5, 1.0)) {
      val table = RandomTables.table(
        random,
        size,
        1 + random.nextInt(64),
        splitShare,
        epoch = random.nextLong() & Long.MaxValue
      )
      val decoded = TableCodec.decode(TableCodec.encode(table))
      assert(decoded == table)
      assert(TableCodec.encode(decoded).sameElements(TableCodec.encode(table)))
    }
  }

  test("equal tables have equal bytes and one digest; the epoch is part of both") {
    val again =
      TableCodec.encode(Table(8, table.entries.map { case (h, t) => h -> t.toSeq }.toMap, epoch = 42))
    assert(again.sameElements(bytes) && TableCodec.digest(again) == TableCodec.digest(bytes))
    assert(TableCodec.digest(TableCodec.encode(table.withEpoch(43))) != TableCodec.digest(bytes))
    assert(TableCodec.digest(bytes).matches("[0-9a-f]{64}"))
  }

  test("bytes cut short at any length are refused") {
    bytes.indices.foreach { length =>
      refused(if (length < TableCodec.HeaderBytes) "cut short" else "damaged")(bytes.take(length))
    }
  }

  test("bytes that run on are refused") {
    refused("damaged")(bytes :+ 0.toByte)
    refused("damaged")(bytes ++ bytes)
  }

  test("any single flipped bit is refused") {
    for (at <- bytes.indices; bit <- 0 until 8) {
      val flipped = bytes.clone()
      flipped(at) = (flipped(at) ^ (1 << bit)).toByte
      refusal("TableError")(TableCodec.decode(flipped))
    }
  }

  test("a grid is written in format 2, and lists of targets as ever in format 1") {
    val grid = Table.of(
      8,
      Map(-5 -> Split(Seq(0, 7, 3, 1, 2, 6), 2), 9 -> Split.left(1, 4), 12 -> Split.right(0, 2)),
      42
    )
    val written = TableCodec.encode(grid)
    assert(littleEndian(written).getInt(4) == 2 && littleEndian(bytes).getInt(4) == 1)
    assert(TableCodec.decode(written) == grid && grid.split(-5) == Split(Seq(0, 7, 3, 1, 2, 6), 2))
    val rows = written.length - 12 // of the first split
    Seq(0 -> "would have holes", 4 -> "would have holes", -1 -> "would have holes").foreach {
      case (n, says) =>
        val body = littleEndian(written.drop(48)).putInt(rows - 48, n).array()
        refused(says)(sealedBody(body, format = 2))
    }
    val plain = bytes.drop(48) ++ Array[Byte](2, 0, 0, 0, 3, 0, 0, 0)
    refused("no split with columns")(sealedBody(plain, format = 2))
    refused("does not take")(sealedBody(bytes.drop(48), format = 2))
  }

  test("bytes of a later format are refused with the way out") {
    val later = bytes.clone()
    littleEndian(later).putInt(4, 3)
    refused("Use the Skewless that wrote it")(later)
  }

  test("foreign bytes are refused") {
    refused("not written by Skewless")(Array.fill(100)(7.toByte))
    refused("cut short")(Array.empty)
  }

  test("a huge or negative declared length is refused before memory is taken") {
    Seq(
      Long.MaxValue,
      Long.MinValue,
      -1L,
      1L << 40,
      Int.MaxValue.toLong,
      TableCodec.MaxBodyBytes + 1L,
      23L,
      0L
    ).foreach { length =>
      val lying = bytes.clone()
      littleEndian(lying).putLong(8, length)
      refused(s"declares $length bytes")(lying)
    }
  }

  test("huge or negative counts are refused before memory is taken") {
    val huge = Seq(Int.MaxValue, Int.MinValue, -1, 1 << 30)
    for (count <- huge; place <- 0 until 3) {
      val counts = Seq(0, 0, 0).updated(place, count)
      refused("does not take")(sealedBody(body(1, 8, counts(0), counts(1), counts(2))))
    }
    // 2 * moves + 2 * splits + targets is a multiple of 2^30 here: ints would wrap around to the right number
    // of bytes.
    refused("does not take")(sealedBody(body(1, 8, 1 << 29, 0, 0)))
    refused("does not take")(sealedBody(body(1, 8, 1 << 29, 1 << 29, 0)))
  }

  test("a body larger than any table is refused before it is hashed") {
    val oversized = new Array[Byte](48 + TableCodec.MaxBodyBytes + 1)
    bytes.copyToArray(oversized, 0, 48)
    littleEndian(oversized).putLong(8, TableCodec.MaxBodyBytes + 1L)
    refused(s"declares ${TableCodec.MaxBodyBytes + 1L} bytes")(oversized)
  }

  test("a body shorter than its counts is refused") {
    refused("declares 0 bytes")(sealedBody(Array.empty))
    refused("declares 23 bytes")(sealedBody(new Array[Byte](23)))
  }

  test("split widths that do not add up are refused") {
    Seq(
      Seq(3, 1),
      Seq(2, 1),
      Seq(2, 3),
      Seq(0, 4),
      Seq(4, 0),
      Seq(-2, 6),
      Seq(Int.MaxValue, Int.MaxValue),
      Seq(Int.MinValue, 4)
    )
      .foreach { widths =>
        refused("add up")(sealedBody(body(1, 8, 0, 2, 4, Seq(10, 20) ++ widths ++ Seq(0, 1, 2, 3): _*)))
      }
  }

  test("the rules of a table hold for bytes too, digest or not") {
    refused("two entries")(sealedBody(body(1, 8, 2, 0, 0, 5, 5, 0, 1)))
    refused("not in order")(sealedBody(body(1, 8, 2, 0, 0, 5, 4, 0, 1)))
    refused("two entries")(sealedBody(body(1, 8, 1, 1, 2, 5, 0, 5, 2, 0, 1)))
    refused("target 8 is not a partition")(sealedBody(body(1, 8, 1, 0, 0, 5, 8)))
    refused("target -1 is not a partition")(sealedBody(body(1, 8, 0, 1, 2, 5, 2, 0, -1)))
    refused("lists one target twice")(sealedBody(body(1, 8, 0, 1, 2, 5, 2, 3, 3)))
    refused("a shuffle has 1 to")(sealedBody(body(1, 0, 0, 0, 0)))
    refused("a shuffle has 1 to")(sealedBody(body(1, Int.MinValue, 0, 0, 0)))
    refused("is not a count")(sealedBody(body(-1, 8, 0, 0, 0)))
    assert(
      TableCodec.decode(sealedBody(body(1, 8, 0, 0, 0))) == Table(8, Map.empty, epoch = 1)
    ) // the seal itself is good
  }
}
