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
  private val moves = mutable.HashMap.empty[Int, Seq[Way]]
  private val ofSplits = mutable.HashMap.empty[Int, (Boolean, Seq[Way])]

  /** Whether the table before lets this partition hold rows of the key. */
  def holds(hash: Int): Boolean =
    if (isSplit(hash)) splitKey(hash)._1 else before.route(hash) == source

  def of(hash: Int): Seq[Way] =
    if (isSplit(hash)) splitKey(hash)._2
    else {
      val target = after.route(hash)
      if (target == source) Nil else moves.getOrElseUpdate(target, Seq(Way(target)))
    }

  private def isSplit(hash: Int) =
    before.find(hash) <= Probe.SplitBase || after.find(hash) <= Probe.SplitBase

  private def splitKey(hash: Int): (Boolean, Seq[Way]) = ofSplits.getOrElseUpdate(
    hash, {
      val of = side.getOrElse(
        throw new IllegalStateException(s"key hash $hash is split, and its state is no join's")
      )
      new SplitMove(before.split(hash), after.split(hash), of).at(source).fold((false, Seq.empty[Way])) {
        step =>
          val copies = step.targets.map(Way(_, keeps = true, step.joinsOthers))
          val ways =
            if (step.stays) copies
            else copies.headOption.fold(Seq(Way(-1)))(first => first.copy(keeps = false) +: copies.tail)
          (true, ways)
      }
    }
  )
}
