package io.skewless.table

/**
 * Where the rows of one key go: distinct partitions in a grid of `rows` rows, row by row. Twin of `split.py`.
 *
 * In a join a row of the left side takes one row of the grid and goes to each of its partitions, a row of the
 * right side takes one column; every pair of rows so meets in exactly one partition. With one column the left
 * side is split, with one row the right side. A key that is not split is a grid of one.
 */
final case class Split(targets: Seq[Int], rows: Int) {
  def columns: Int = targets.length / rows

  /** Among how many places a row of one side chooses one. */
  def width(side: Side): Int = if (side == Left) rows else columns

  def row(i: Int): Seq[Int] = targets.slice(i * columns, (i + 1) * columns)
  def column(j: Int): Seq[Int] = (0 until rows).map(i => targets(i * columns + j))

  /** The partitions of a row of `side` that has made its choice. */
  def cells(side: Side, choice: Int): Seq[Int] = if (side == Left) row(choice) else column(choice)

  /** Where among the choices of a side a partition stands; -1 if it is no target. */
  def choiceAt(side: Side, partition: Int): Int = {
    val at = targets.indexOf(partition)
    if (at < 0) -1 else if (side == Left) at / columns else at % columns
  }
}

object Split {

  /** A key in one partition. */
  def one(partition: Int): Split = Split(Seq(partition), 1)
  def left(targets: Int*): Split = Split(targets, targets.length)
  def right(targets: Int*): Split = Split(targets, 1)
}

/** A side of a join. */
sealed trait Side { def name: String }

/** The side whose rows take a row of the grid; what reads no join counts as this one. */
case object Left extends Side { val name = "left" }

/** The side whose rows take a column of the grid. */
case object Right extends Side { val name = "right" }
