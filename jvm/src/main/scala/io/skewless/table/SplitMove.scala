package io.skewless.table

/**
 * Where the state rows of one side go when the split of their key changes. All rows that a partition holds of
 * the key and the side made the same choice, so they go the same way: they follow their choice to the one of
 * the new split that keeps most of their copies where they are. Rows of several choices may so come together.
 *
 * Every copy of a row is the same row, so one copy (the first partition of the choice) gives to the
 * partitions that have none yet; a copy that the new split does not want is dropped.
 */
final class SplitMove(before: Split, after: Split, side: Side) {

  /** The choice in the new split of the rows that made this one in the old. */
  private val next: Array[Int] = Array.tabulate(before.width(side)) { old =>
    val cells = before.cells(side, old).toSet
    val kept = (0 until after.width(side)).map(after.cells(side, _).count(cells))
    if (kept.max > 0) kept.indexOf(kept.max) else old % after.width(side)
  }

  /** What happens to the rows that a partition holds; None if it should hold none. */
  def at(partition: Int): Option[SplitMove.Step] = {
    val old = before.choiceAt(side, partition)
    Option.when(old >= 0) {
      val (held, wanted) = (before.cells(side, old), after.cells(side, next(old)))
      SplitMove.Step(
        stays = wanted.contains(partition),
        targets = if (held.head == partition) wanted.filterNot(held.contains) else Nil,
        joinsOthers = next.count(_ == next(old)) > 1
      )
    }
  }
}

object SplitMove {

  /**
   * @param stays       whether the partition keeps its rows
   * @param targets     the partitions that get a copy from here
   * @param joinsOthers whether rows of another choice come to the same partitions
   */
  final case class Step(stays: Boolean, targets: Seq[Int], joinsOthers: Boolean)
}
