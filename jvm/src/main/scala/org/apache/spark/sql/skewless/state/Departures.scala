// In Spark's package because it stands in the export of its state stores.
package org.apache.spark.sql.skewless.state

import scala.collection.mutable

import io.skewless.moves.Way
import io.skewless.table.{Probe, Side, SplitMove, Table}

/**
 * Where the state rows of one column family go from one partition when tables are swapped. Asked for every
 * row of the family: nothing is allocated for a key that stays and is not split.
 *
 * @param side the side of a join whose rows the family holds; None keeps every key in one place
 */
private[skewless] final class Departures(before: Table, after: Table, side: Option[Side], source: Int) {
  import Departures.Misplaced

  private val moves = mutable.HashMap.empty[Int, Seq[Way]]
  private val ofSplits = mutable.HashMap.empty[Int, Seq[Way]]

  /** `Misplaced` if the table before lets this partition hold no rows of the key. Asks each table once. */
  def of(hash: Int): Seq[Way] = {
    val was = before.find(hash)
    val is = after.find(hash)
    if (was <= Probe.SplitBase || is <= Probe.SplitBase) ofSplits.getOrElseUpdate(hash, ofSplit(hash))
    else if (partition(was, hash) != source) Misplaced
    else {
      val target = partition(is, hash)
      if (target == source) Nil else moves.getOrElseUpdate(target, Seq(Way(target)))
    }
  }

  private def partition(code: Int, hash: Int): Int =
    if (code == Probe.Absent) Math.floorMod(hash, before.partitions) else code

  private def ofSplit(hash: Int): Seq[Way] = {
    val of = side.getOrElse(
      throw new IllegalStateException(s"key hash $hash is split, and its state is no join's")
    )
    new SplitMove(before.split(hash), after.split(hash), of).at(source).fold(Misplaced) { step =>
      val copies = step.targets.map(Way(_, keeps = true, step.joinsOthers))
      if (step.stays) copies
      else copies.headOption.fold(Seq(Way(-1)))(first => first.copy(keeps = false) +: copies.tail)
    }
  }
}

private[skewless] object Departures {

  /** Told by identity. */
  val Misplaced: Seq[Way] = Seq(Way(-1))
}
