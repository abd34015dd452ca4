package org.apache.spark.sql.skewless

import io.skewless.Table
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.functions._
import org.scalatest.funsuite.AnyFunSuite

/** State follows its key: every operator, plain and with tables swapped between batches, gives the same rows in every batch. */
class StateSwapSuite extends AnyFunSuite with StatefulRun {

  private class Operator(val name: String, val mode: String, val keys: Seq[String], val conf: (String, String)*)(
      val query: DataFrame => DataFrame
  )

  private val noCodegen = "spark.sql.codegen.wholeStage" -> "false"

  private val timed = (df: DataFrame) => df.withWatermark("t", "20 seconds")

  private def join(kind: String)(df: DataFrame): DataFrame = {
    val left = timed(df).where("v % 2 = 0").select(col("k"), col("v").as("lv"), col("t").as("lt"))
    val right = timed(df).where("v % 2 = 1").select(col("k").as("rk"), col("v").as("rv"), col("t").as("rt"))
    left.join(right, expr("k = rk AND rt BETWEEN lt AND lt + INTERVAL 25 seconds"), kind)
  }

  private def joinFormat(version: Int) = "spark.sql.streaming.join.stateFormatVersion" -> version.toString

  private val operators = Seq(
    new Operator("count", "update", Seq("k"))(_.groupBy("k").count()),
    new Operator("count, no codegen", "update", Seq("k"), noCodegen)(_.groupBy("k").count()),
    new Operator("count, complete", "complete", Seq("k"))(_.groupBy("k").count()),
    new Operator("collect_list (object hash aggregate)", "update", Seq("k"))(_.groupBy("k").agg(sort_array(collect_list("v")))),
    new Operator("max of strings (sort aggregate)", "update", Seq("k", "g"))(
      _.groupBy("k", "g").agg(max(col("v").cast("string")))
    ),
    new Operator("windowed count, append", "append", Seq("k", "w"))(
      timed(_).groupBy(col("k"), window(col("t"), "20 seconds")).count()
    ),
    new Operator("dropDuplicates", "append", Seq("k", "g"))(_.dropDuplicates("k", "g")),
    new Operator("dropDuplicates by time", "append", Seq("k", "g", "t"))(timed(_).dropDuplicates("k", "g", "t")),
    new Operator("dropDuplicatesWithinWatermark", "append", Seq("k"))(timed(_).dropDuplicatesWithinWatermark("k")),
    new Operator("session window", "append", Seq("k"))(timed(_).groupBy(col("k"), session_window(col("t"), "9 seconds")).count()),
    new Operator("flatMapGroupsWithState", "update", Seq("k"))(Stateful.totals(_)),
    new Operator("flatMapGroupsWithState, event-time timeout", "append", Seq("k"))(df => Stateful.timeouts(timed(df))),
    new Operator("transformWithState, value, list and map", "update", Seq("k"))(Stateful.variables(_)),
    new Operator("transformWithState, timers", "update", Seq("k"))(df => Stateful.timers(timed(df))),
    new Operator("stream-stream join, inner", "append", Seq("k"), joinFormat(2))(join("inner")),
    new Operator("stream-stream join, inner, one store", "append", Seq("k"), joinFormat(3))(join("inner")),
    new Operator("stream-stream join, left outer", "append", Seq("k"), joinFormat(2))(join("left_outer")),
    new Operator("stream-stream join, full outer, one store", "append", Seq("k"), joinFormat(3))(join("full_outer")),
    new Operator("dropDuplicates, then count, on one exchange", "update", Seq("k"))(
      timed(_).dropDuplicatesWithinWatermark("k").groupBy("k").count()
    ),
    new Operator("two aggregates with different keys", "append", Seq("k", "w"))(
      timed(_)
        .groupBy(col("k"), window(col("t"), "20 seconds"))
        .agg(sum("v").as("s"))
        .groupBy(col("window"), (col("s") % 3).as("m"))
        .count()
    ),
    new Operator("count joined to a static table on its key", "update", Seq("k"))(
      _.groupBy("k").count().join(spark.range(40).select(concat(lit("key-"), col("id")).as("k"), (col("id") * 3).as("x")), "k")
    )
  )

  /** Swaps before batches 2, 4, 5 and 6: move, move others, return some, return all. */
  private def swapped(operator: Operator, batches: Seq[Seq[Event]]) = withRun(operator.query, operator.mode, ours) { run =>
    val all = hashes(batches, operator.keys: _*)
    val swaps = Map(2 -> table(all, 1), 4 -> table(all, 2), 5 -> table(all, 5), 6 -> Table.empty(n))
    val query = run.start()
    batches.zipWithIndex.foreach { case (rows, i) =>
      swaps.get(i).foreach(t => RunningQueries.publish(query, t, limits))
      run.stream.addData(rows)
      query.processAllAvailable()
    }
    SparkPrivate.drainListeners(spark.sparkContext)
    val records = RunningQueries.swaps(query)
    assert(records.map(_.epoch) == Seq(1, 2, 3, 4), "every swap was carried out")
    assert(records.forall(r => r.rows > 0 && r.sources.nonEmpty && r.targets.nonEmpty), s"state did move: $records")
    assert(
      !java.nio.file.Files.exists(run.dir.resolve("checkpoint/_skewless/moves")) || run.scratch.isEmpty,
      "scratch is removed"
    )
    run.outcome
  }

  for (operator <- operators; format <- Seq("1", "2"))
    test(s"${operator.name}, checkpoint format $format") {
      val confs = operator.conf :+ "spark.sql.streaming.stateStore.checkpointFormatVersion" -> format
      withConf(confs: _*) {
        val batches = input(9)
        same(swapped(operator, batches), plain(operator.query, operator.mode, batches))
      }
    }
}
