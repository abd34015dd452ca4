package io.skewless.table

import scala.util.Random

import io.skewless.Refusals.refusal
import io.skewless.table.TableDiff.{compose, diff}
import org.scalatest.funsuite.AnyFunSuite

class TableDiffSuite extends AnyFunSuite {

  private val random = new Random(21)

  /** Hashes from a small range, so that neighbours share, lack and change entries. */
  private def table(partitions: Int): Table =
    RandomTables.table(random, random.nextInt(20), partitions, hashRange = 40)

  private def applied(table: Table, changes: Seq[Change]): Int => Seq[Int] = {
    val after = changes.map(change => change.keyHash -> change.after).toMap
    hash => after.get(hash).fold(table.targets(hash).toSeq)(_.targets)
  }

  test("a diff names exactly the hashes whose targets differ, with both") {
    for (_ <- 1 to 300) {
      val n = 1 + random.nextInt(6)
      val (older, newer) = (table(n), table(n))
      val changes = diff(older, newer)
      val differing = (-30 to 30).filter(hash => older.targets(hash).toSeq != newer.targets(hash).toSeq)
      assert(changes.map(_.keyHash) == differing)
      changes.foreach { change =>
        assert(
          change.before == older.split(change.keyHash) && change.after == newer.split(change.keyHash)
        )
      }
      (-30 to 30).foreach(hash => assert(applied(older, changes)(hash) == newer.targets(hash).toSeq))
    }
  }

  test("a table differs in nothing from itself, nor from itself under another epoch") {
    for (_ <- 1 to 50) {
      val t = table(5)
      assert(diff(t, t).isEmpty && diff(t, t.withEpoch(99)).isEmpty)
    }
  }

  test("an entry that only repeats plain hashing is no change") {
    assert(diff(Table.empty(4), Table(4, Map(6 -> Seq(2), -1 -> Seq(3)))).isEmpty)
  }

  test("the order of a split's targets is a change") {
    assert(
      diff(Table(4, Map(6 -> Seq(0, 1))), Table(4, Map(6 -> Seq(1, 0)))) == Seq(
        Change(6, Split.left(0, 1), Split.left(1, 0))
      )
    )
  }

  test("the shape of a grid is a change") {
    val (left, right) = (Split.left(0, 1), Split.right(0, 1))
    assert(
      diff(Table.of(4, Map(6 -> left)), Table.of(4, Map(6 -> right))) == Seq(Change(6, left, right))
    )
  }

  test("the way back undoes the way there") {
    for (_ <- 1 to 100) {
      val (a, b) = (table(4), table(4))
      assert(diff(b, a) == diff(a, b).map(change => Change(change.keyHash, change.after, change.before)))
      assert(compose(diff(a, b), diff(b, a)).isEmpty)
    }
  }

  test("two steps compose to the step from first to last, and composition is associative") {
    for (_ <- 1 to 300) {
      val n = 1 + random.nextInt(6)
      val (a, b, c, d) = (table(n), table(n), table(n), table(n))
      assert(compose(diff(a, b), diff(b, c)) == diff(a, c))
      assert(
        compose(compose(diff(a, b), diff(b, c)), diff(c, d)) == compose(
          diff(a, b),
          compose(diff(b, c), diff(c, d))
        )
      )
      assert(compose(diff(a, b), Nil) == diff(a, b) && compose(Nil, diff(a, b)) == diff(a, b))
    }
  }

  test("steps that do not follow each other are refused") {
    val error = refusal("TableError")(
      compose(Seq(Change(5, Split.one(1), Split.one(2))), Seq(Change(5, Split.one(3), Split.one(0))))
    )
    assert(error.getMessage.contains("in the order in which they were made"))
  }

  test("tables for different numbers of partitions are refused") {
    assert(
      refusal("TableError")(diff(Table.empty(4), Table.empty(5))).getMessage
        .contains("plain hashing itself differs")
    )
  }
}
