package org.apache.spark.sql.skewless

import scala.util.Random

import io.skewless.table.{Left, Side, Split, Table}
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.split.SpreadExec
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.Assertions

/**
 * Joins with one key that has two fifths of the rows, and courses of tables that split it. The condition is
 * sparse: most rows of an outer side stay without a partner, so that rows given out for those are really
 * decided.
 */
trait JoinSplits extends StatefulRun { this: Assertions =>
  protected override val n = 6
  protected val hot = "hot"

  protected def joinInput(batches: Int, seed: Int = 3): Seq[Seq[Event]] = {
    val random = new Random(seed)
    Seq.tabulate(batches) { batch =>
      Seq.tabulate(90) { i =>
        val key = random.nextInt(20) match {
          case 0 => null
          case other if other <= 8 => hot
          case _ => s"key-${random.nextInt(30)}"
        }
        Event(key, random.nextInt(12), batch * 1000L + i, batch * 20L + random.nextInt(40))
      }
    }
  }

  protected def join(kind: String)(df: DataFrame): DataFrame = {
    val timed = df.withWatermark("t", "20 seconds")
    val left =
      timed.where("v % 2 = 0").select(col("k"), col("g").as("lg"), col("v").as("lv"), col("t").as("lt"))
    val right = timed
      .where("v % 2 = 1")
      .select(col("k").as("rk"), col("g").as("rg"), col("v").as("rv"), col("t").as("rt"))
    left.join(
      right,
      expr("k = rk AND (lv * 7 + rv) % 17 = 0 AND rt BETWEEN lt AND lt + INTERVAL 25 seconds"),
      kind
    )
  }

  protected def joinOf(kind: String, confs: (String, String)*): Operator =
    new Operator(
      s"split join, $kind",
      "append",
      Seq("k"),
      confs :+ "spark.sql.shuffle.partitions" -> s"$n": _*
    )(
      join(kind)
    )

  protected lazy val hotHash: Int = hashes(Seq(Seq(Event(hot, 0, 0, 0))), "k").head

  /** A table that splits the hot key, beside moves of a part of the others. */
  protected def splitting(
      split: Split,
      others: Iterable[Int] = Nil,
      by: Int = 0,
      hash: Int = hotHash
  ): Table = {
    val moves = table(others, by).entries.map { case (other, targets) =>
      other -> Split.one(targets.head)
    }.toMap
    Table.of(n, moves.updated(hash, split))
  }

  /** Grow from one partition to three and five, shift to three with a newcomer, shrink to two and to one. */
  protected def course(side: Side, others: Iterable[Int], hash: Int = hotHash): Map[Int, Table] = {
    val home = Math.floorMod(hash, n)
    def at(offsets: Int*) = {
      val targets = offsets.map(o => (home + o) % n)
      Split(targets, if (side == Left) targets.size else 1)
    }
    Map(
      1 -> splitting(at(0, 1, 2), hash = hash),
      2 -> splitting(at(0, 1, 2, 3, 4), others, 1, hash),
      3 -> splitting(at(3, 1, 5), others, 2, hash),
      5 -> splitting(at(5, 1), others, 2, hash),
      6 -> splitting(Split.one((home + 5) % n), hash = hash),
      7 -> Table.empty(n)
    )
  }

  /** Grids that grow, turn, become a split of either side, and end. */
  protected def grids(others: Iterable[Int]): Map[Int, Table] = Map(
    1 -> splitting(Split(Seq(0, 1, 2, 3), 2)),
    2 -> splitting(Split(Seq(0, 1, 2, 3, 4, 5), 2), others, 1),
    3 -> splitting(Split(Seq(0, 1, 2, 3, 4, 5), 3)),
    4 -> splitting(Split.left(5, 0, 3)),
    5 -> splitting(Split.right(3, 2, 5), others, 2),
    6 -> splitting(Split(Seq(4, 1), 2)),
    7 -> Table.empty(n)
  )

  protected def spreads(query: StreamingQuery): Boolean =
    query
      .asInstanceOf[StreamingQueryWrapper]
      .streamingQuery
      .lastExecution
      .executedPlan
      .exists(_.isInstanceOf[SpreadExec])
}
