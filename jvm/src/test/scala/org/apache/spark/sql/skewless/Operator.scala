package org.apache.spark.sql.skewless

import io.skewless.table.{Left, Right, Side, Split}
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.functions._

/**
 * A stateful query over the test streams (`Event`).
 *
 * @param keys the columns that its exchange hashes, "w" for the window of 20 seconds
 */
class Operator(val name: String, val mode: String, val keys: Seq[String], val conf: (String, String)*)(
    val query: DataFrame => DataFrame
)

/** A join with splits of its hottest key in the tables of a `FileRun`. */
final class SplitJoin(name: String, side: Side, conf: (String, String)*)(query: DataFrame => DataFrame)
    extends Operator(name, "append", Seq("k"), conf: _*)(query) {

  /** A split over other partitions for each `by`: three, two, two others. */
  def split(by: Int): Split = {
    val targets = if (by == 1) Seq(by, 2, 0) else Seq(by % 4, (by + 2) % 4)
    Split(targets, if (side == Left) targets.size else 1)
  }
}

/** Every stateful operator whose state moves, in each form that Spark plans differently. */
object Operator {
  private val noCodegen = "spark.sql.codegen.wholeStage" -> "false"

  private val timed = (df: DataFrame) => df.withWatermark("t", "20 seconds")

  private def join(kind: String)(df: DataFrame): DataFrame = {
    val left = timed(df).where("v % 2 = 0").select(col("k"), col("v").as("lv"), col("t").as("lt"))
    val right = timed(df).where("v % 2 = 1").select(col("k").as("rk"), col("v").as("rv"), col("t").as("rt"))
    left.join(right, expr("k = rk AND rt BETWEEN lt AND lt + INTERVAL 25 seconds"), kind)
  }

  private def joinFormat(version: Int) = "spark.sql.streaming.join.stateFormatVersion" -> version.toString

  val all: Seq[Operator] = Seq(
    new Operator("count", "update", Seq("k"))(_.groupBy("k").count()),
    new Operator("count, no codegen", "update", Seq("k"), noCodegen)(_.groupBy("k").count()),
    new Operator("count, complete", "complete", Seq("k"))(_.groupBy("k").count()),
    new Operator("collect_list (object hash aggregate)", "update", Seq("k"))(
      _.groupBy("k").agg(sort_array(collect_list("v")))
    ),
    new Operator("max of strings (sort aggregate)", "update", Seq("k", "g"))(
      _.groupBy("k", "g").agg(max(col("v").cast("string")))
    ),
    new Operator("windowed count, append", "append", Seq("k", "w"))(
      timed(_).groupBy(col("k"), window(col("t"), "20 seconds")).count()
    ),
    new Operator("dropDuplicates", "append", Seq("k", "g"))(_.dropDuplicates("k", "g")),
    new Operator("dropDuplicates by time", "append", Seq("k", "g", "t"))(
      timed(_).dropDuplicates("k", "g", "t")
    ),
    new Operator("dropDuplicatesWithinWatermark", "append", Seq("k"))(
      timed(_).dropDuplicatesWithinWatermark("k")
    ),
    new Operator("session window", "append", Seq("k"))(
      timed(_).groupBy(col("k"), session_window(col("t"), "9 seconds")).count()
    ),
    new Operator("flatMapGroupsWithState", "update", Seq("k"))(Stateful.totals(_)),
    new Operator("flatMapGroupsWithState, event-time timeout", "append", Seq("k"))(df =>
      Stateful.timeouts(timed(df))
    ),
    new Operator("transformWithState, value, list and map", "update", Seq("k"))(Stateful.variables(_)),
    new Operator("transformWithState, timers", "update", Seq("k"))(df => Stateful.timers(timed(df))),
    new Operator("stream-stream join, inner", "append", Seq("k"), joinFormat(2))(join("inner")),
    new Operator("stream-stream join, inner, one store", "append", Seq("k"), joinFormat(3))(join("inner")),
    new Operator("stream-stream join, left outer", "append", Seq("k"), joinFormat(2))(join("left_outer")),
    new Operator("stream-stream join, full outer, one store", "append", Seq("k"), joinFormat(3))(
      join("full_outer")
    ),
    new Operator("dropDuplicates, then count, on one exchange", "update", Seq("k"))(
      timed(_).dropDuplicatesWithinWatermark("k").groupBy("k").count()
    ),
    new Operator("union of two dropDuplicates", "append", Seq("k"))(df =>
      df.where("v % 2 = 0").dropDuplicates("k").union(df.where("v % 2 = 1").dropDuplicates("k"))
    ),
    new Operator("two aggregates with different keys", "append", Seq("k", "w"))(
      timed(_)
        .groupBy(col("k"), window(col("t"), "20 seconds"))
        .agg(sum("v").as("s"))
        .groupBy(col("window"), (col("s") % 3).as("m"))
        .count()
    ),
    new Operator("count joined to a static table on its key", "update", Seq("k"))(df =>
      df.groupBy("k")
        .count()
        .join(
          df.sparkSession.range(40).select(concat(lit("key-"), col("id")).as("k"), (col("id") * 3).as("x")),
          "k"
        )
    )
  )

  /** Joins whose hottest key is split besides, on a side that the join allows. */
  val splitting: Seq[SplitJoin] = Seq(
    new SplitJoin("split join, left outer", Left, joinFormat(2))(join("left_outer")),
    new SplitJoin("split join, right outer, one store", Right, joinFormat(3))(join("right_outer")),
    new SplitJoin("split join, left semi, one store", Left, joinFormat(3))(join("left_semi"))
  )

  def named(name: String): Operator = (all ++ splitting).find(_.name == name).get
}
