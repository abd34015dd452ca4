package io.skewless.table

import scala.util.Random

import org.scalatest.funsuite.AnyFunSuite

/** Rows of a split key in a model of partitions: a fold over the steps of the moves, on random grids. */
class SplitMoveSuite extends AnyFunSuite {
  private val n = 8
  private val random = new Random(5)
  private val shapes =
    Seq((1, 1), (1, 1), (2, 1), (3, 1), (5, 1), (1, 2), (1, 4), (2, 2), (2, 3), (3, 2), (4, 2))

  private def split(): Split = {
    val (rows, columns) = shapes(random.nextInt(shapes.size))
    Split(random.shuffle((0 until n).toList).take(rows * columns), rows)
  }

  /** What each partition holds, as a multiset of rows, after one move. */
  private def moved(held: Map[Int, Seq[Int]], before: Split, after: Split, side: Side): Map[Int, Seq[Int]] = {
    val move = new SplitMove(before, after, side)
    val steps = held.toSeq.filter(_._2.nonEmpty).map { case (p, rows) =>
      (p, rows, move.at(p).getOrElse(fail(s"partition $p may hold nothing")))
    }
    val parts = steps.flatMap { case (p, rows, step) =>
      step.targets.map(_ -> rows) ++ Option.when(step.stays)(p -> rows)
    }
    parts.groupMapReduce(_._1)(_._2)(_ ++ _)
  }

  test("every row is held by all partitions of one choice, once each, through any course of splits") {
    for (_ <- 1 to 500; side <- Seq(Left, Right)) {
      val splits = Seq.fill(5)(split())
      val first = splits.head
      val rows = (0 until 3 * first.width(side)).map(row => row -> row % first.width(side))
      var held: Map[Int, Seq[Int]] = rows
        .flatMap { case (row, choice) => first.cells(side, choice).map(_ -> row) }
        .groupMap(_._1)(_._2)
      splits.zip(splits.tail).foreach { case (before, after) =>
        held = moved(held, before, after, side)
        val places = rows.map { case (row, _) =>
          held.toSeq.flatMap { case (p, all) => all.filter(_ == row).map(_ => p) }
        }
        val allowed = (0 until after.width(side)).map(after.cells(side, _).sorted)
        places.foreach(place => assert(allowed.contains(place.sorted), s"$before to $after, $side"))
      }
    }
  }

  test("rows that come together with others are said to, and no others") {
    for (_ <- 1 to 500; side <- Seq(Left, Right)) {
      val (before, after) = (split(), split())
      val move = new SplitMove(before, after, side)
      val choices = before.targets.groupBy(before.choiceAt(side, _)).toSeq.sortBy(_._1).map(_._2)
      val goes = choices.map { cells =>
        cells.flatMap { p =>
          val step = move.at(p).get; step.targets ++ Option.when(step.stays)(p)
        }.sorted
      }
      choices.zip(goes).foreach { case (cells, place) =>
        cells.foreach(p => assert(move.at(p).get.joinsOthers == (goes.count(_ == place) > 1)))
      }
    }
  }

  test("a split that grows or shrinks leaves rows where they are as far as it can") {
    val (three, five) = (Split.left(4, 1, 6), Split.left(4, 1, 6, 0, 2))
    assert(
      (0 until n).flatMap(new SplitMove(three, five, Left).at(_)).forall(s => s.stays && s.targets.isEmpty)
    )
    val shrink = new SplitMove(five, three, Left)
    assert(Seq(4, 1, 6).forall(shrink.at(_).get.stays) && !shrink.at(0).get.stays && shrink.at(3).isEmpty)
    val copied = new SplitMove(three, five, Right)
    assert(copied.at(4).get.targets == Seq(0, 2) && copied.at(1).get.targets.isEmpty)
  }
}
