package io.skewless.table

import io.skewless.SkewlessException

/**
 * One key hash whose targets, or their grid, differ between two tables; plain hashing counts as a target.
 * Twin of `Change` in `table.py`.
 */
final case class Change(keyHash: Int, before: Split, after: Split)

object TableDiff {

  /** Every key hash whose targets or their grid differ, in order of hash. */
  def diff(older: Table, newer: Table): Seq[Change] = {
    if (older.partitions != newer.partitions)
      throw SkewlessException.table(
        s"a table for ${older.partitions} partitions cannot be compared with one for ${newer.partitions}: " +
          "plain hashing itself " +
          "differs between them. Compare tables of one query."
      )
    (older.entries.map(_._1) ++ newer.entries.map(_._1)).distinct.sorted
      .map(hash => Change(hash, older.split(hash), newer.split(hash)))
      .filter(change => change.before != change.after)
  }

  /** The changes of two steps as one step: `compose(diff(a, b), diff(b, c)) == diff(a, c)`. */
  def compose(first: Seq[Change], second: Seq[Change]): Seq[Change] = {
    val earlier = first.map(change => change.keyHash -> change).toMap
    val merged = second.foldLeft(earlier) { (steps, change) =>
      val before = steps.get(change.keyHash).fold(change.before) { step =>
        if (step.after != change.before)
          throw SkewlessException.table(
            s"key hash ${change.keyHash} goes to ${step.after.targets} in the first step but leaves " +
              s"${change.before.targets} in the second. " +
              "Compose steps in the order in which they were made."
          )
        step.before
      }
      steps.updated(change.keyHash, change.copy(before = before))
    }
    merged.values.filter(change => change.before != change.after).toSeq.sortBy(_.keyHash)
  }
}
