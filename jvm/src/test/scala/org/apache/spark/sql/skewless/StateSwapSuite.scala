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

  private val operators = Seq(
    new Operator("count", "update", Seq("k"))(_.groupBy("k").count()),
    new Operator("count, no codegen", "update", Seq("k"), noCodegen)(_.groupBy("k").count()),
    new Operator("count, complete", "complete", Seq("k"))(_.groupBy("k").count()),
    new Operator("collect_list (object hash aggregate)", "update", Seq("k"))(_.groupBy("k").agg(sort_array(collect_list("v")))),
    new Operator("max of strings (sort aggregate)", "update", Seq("k", "g"))(_.groupBy("k", "g").agg(max(col("v").cast("string")))),
    new Operator("windowed count, append", "append", Seq("k", "w"))(
      _.withWatermark("t", "20 seconds").groupBy(col("k"), window(col("t"), "20 seconds")).count()
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
