package io.skewless.table

import java.nio.file.Files

import io.skewless.Repository
import org.json4s._
import org.json4s.jackson.JsonMethods.parse
import org.scalatest.funsuite.AnyFunSuite

/** The JVM's tables agree to the byte with the vectors that Python wrote: `tests/vectors/make_tables.py`. */
class TableVectorsSuite extends AnyFunSuite {
  import TableVectorsSuite._
  private implicit val formats: Formats = DefaultFormats

  private val vectors = parse(Files.readString(Repository.file("tests/vectors/tables.json"))).extract[Vectors]
  private val tables =
    vectors.tables.map(vector => Table.of(vector.partitions, entriesOf(vector), vector.epoch))

  private def entriesOf(vector: TableVector): Map[Int, Split] = vector.entries.map { entry =>
    entry(0).extract[Int] -> split(entry(1), entry.lift(2))
  }.toMap

  /** Without a number of rows, a list of targets: one column. */
  private def split(targets: JValue, rows: Option[JValue]): Split = {
    val all = targets.extract[Seq[Int]]
    Split(all, rows.fold(all.length)(_.extract[Int]))
  }

  test("the vectors cover moves, splits and plain hashing") {
    assert(
      tables.size >= 40 && tables.exists(_.isEmpty) && tables.exists(_.hasSplits) && tables.exists(
        _.hasGrids
      ) &&
        vectors.diffs.size >= 20
    )
  }

  test("every table encodes to the recorded bytes, and reads back from them") {
    vectors.tables.zip(tables).foreach { case (vector, table) =>
      val bytes = TableCodec.encode(table)
      assert(hex(bytes) == vector.encoded)
      assert(TableCodec.digest(bytes) == vector.digest)
      assert(TableCodec.decode(unhex(vector.encoded)) == table)
    }
  }

  test("every recorded row is routed to the recorded target") {
    for ((vector, table) <- vectors.tables.zip(tables); row <- vector.routes) {
      val code = table.find(row.hash)
      val target =
        if (code > Probe.SplitBase) table.route(row.hash)
        else
          table.spread(
            code,
            row.hash,
            row.mapPartition,
            row.mappers,
            row.content.getOrElse(0),
            row.content.isDefined
          )
      assert(target == row.target, row)
    }
  }

  test("the recorded rows reach both choices of a split key") {
    val split = for {
      (vector, table) <- vectors.tables.zip(tables)
      row <- vector.routes if table.find(row.hash) <= Probe.SplitBase
    } yield (row.content.isDefined, row.mappers >= table.targets(row.hash).length)
    assert(split.toSet == Set((true, true), (true, false), (false, true), (false, false)))
  }

  test("neighbours differ as recorded") {
    vectors.diffs.foreach { expected =>
      val changes = expected.changes.map { change =>
        Change(
          change(0).extract[Int],
          split(change(1), change.lift(3)),
          split(change(2), change.lift(4))
        )
      }
      assert(TableDiff.diff(tables(expected.older), tables(expected.newer)) == changes)
    }
  }

  private def hex(bytes: Array[Byte]): String = bytes.map(b => f"$b%02x").mkString
  private def unhex(text: String): Array[Byte] = text.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray
}

object TableVectorsSuite {
  case class Vectors(tables: Seq[TableVector], diffs: Seq[DiffVector])
  case class TableVector(
      partitions: Int,
      epoch: Long,
      entries: Seq[Seq[JValue]],
      encoded: String,
      digest: String,
      routes: Seq[RouteVector]
  )
  case class RouteVector(hash: Int, mapPartition: Int, mappers: Int, content: Option[Int], target: Int)
  case class DiffVector(older: Int, newer: Int, changes: Seq[Seq[JValue]])
}
