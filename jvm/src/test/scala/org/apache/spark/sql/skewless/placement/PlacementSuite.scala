package org.apache.spark.sql.skewless.placement

import java.util.concurrent.ConcurrentLinkedQueue

import scala.jdk.CollectionConverters._

import io.skewless.table.Table
import org.apache.spark.NarrowDependency
import org.apache.spark.SparkContext.DRIVER_IDENTIFIER
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, Dataset, Row}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.{Event, Operator, Queries, StatefulRun}
import org.apache.spark.sql.skewless.query.QueryRegistry
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.funsuite.AnyFunSuite

/**
 * A wish for an executor changes no row, reaches the scheduler, and is gone with its executor. That tasks do
 * run there is seen on real executors: `integration/test_placement.py`.
 */
class PlacementSuite extends AnyFunSuite with StatefulRun {

  private val wished = (0 until n).map(_ -> DRIVER_IDENTIFIER).toMap

  private def chained(df: DataFrame): DataFrame =
    df.withWatermark("t", "20 seconds")
      .groupBy(col("k"), window(col("t"), "10 seconds"))
      .count()
      .groupBy(window(col("window"), "20 seconds"))
      .agg(sum("count"))

  private val operators = Operator.all.filter(o =>
    Set(
      "count",
      "transformWithState, timers",
      "stream-stream join, left outer"
    )(o.name)
  ) :+ new Operator("chained aggregates", "append", Seq("k", "w"))(chained)

  private def execution(query: StreamingQuery): StreamExecution =
    query.asInstanceOf[StreamingQueryWrapper].streamingQuery

  private def placedIn(query: StreamingQuery): Seq[PlacedStageExec] =
    execution(query).lastExecution.executedPlan.collect { case placed: PlacedStageExec => placed }

  /** Batches with wishes before batches 1 and 3, none any more before 5, and a swap before 2 and 3. */
  private def placed(operator: Operator, batches: Seq[Seq[Event]]) =
    withRun(operator.query, operator.mode, ours) { run =>
      val all = hashes(batches, operator.keys: _*)
      val query = run.start()
      val swaps = Map(2 -> table(all, 1), 3 -> table(all, 2), 5 -> Table.empty(n))
      val wishes = Map(1 -> wished, 3 -> wished.filter(_._1 % 2 == 0), 5 -> Map.empty[Int, String])
      batches.zipWithIndex.foreach { case (rows, i) =>
        wishes.get(i).foreach(QueryRegistry.run(query).place)
        if (operator.name != "chained aggregates")
          swaps.get(i).foreach(t => Queries.publish(query, t, limits))
        run.stream.addData(rows)
        query.processAllAvailable()
        val stages = if (operator.name == "chained aggregates") 2 else 1
        assert(placedIn(query).size == (if (i >= 1 && i < 5) stages else 0), s"batch $i")
      }
      run.outcome
    }

  assert(operators.size == 4, "an operator was renamed")
  for (operator <- operators)
    test(s"${operator.name}: wishes change no row, with swaps in the same batches") {
      withConf(operator.conf: _*) {
        val batches = input(7)
        same(placed(operator, batches), plain(operator, batches))
      }
    }

  /**
   * The RDD that tells the scheduler where a task of its stage should run: the first from the top that does.
   */
  private def decider(rdd: RDD[_], partition: Int): Option[RDD[_]] =
    if (rdd.preferredLocations(rdd.partitions(partition)).nonEmpty) Some(rdd)
    else
      rdd.dependencies
        .collectFirst { case narrow: NarrowDependency[_] => narrow.rdd }
        .flatMap(decider(_, partition))

  test("the scheduler is told the wish first, and asks the state store where there is none") {
    val deciders = new ConcurrentLinkedQueue[Seq[String]]()
    withRun(_.groupBy("k").count(), "update", ours) { run =>
      def note(batch: Dataset[Row], id: Long): Unit = {
        run.collect(batch, id)
        val rows = batch.queryExecution.toRdd
        val names = (0 until n).map(decider(rows, _).fold("nobody")(_.getClass.getSimpleName))
        deciders.add(names); ()
      }
      val query = run.start(note)
      input(2).zipWithIndex.foreach { case (rows, i) =>
        if (i == 1) QueryRegistry.run(query).place(Map(2 -> DRIVER_IDENTIFIER))
        run.stream.addData(rows)
        query.processAllAvailable()
      }
    }
    val second = deciders.asScala.toSeq(1)
    assert(second == Seq("StateStoreRDD", "StateStoreRDD", "PlacedRDD", "StateStoreRDD"))
  }

  private final class Executors(var alive: Map[String, String]) extends AliveExecutors {
    override def hosts: Map[String, String] = alive
    override def isAlive(executor: String): Boolean = alive.contains(executor)
  }

  test(
    "an executor that dies after it was named is not named to the scheduler, until it is wished for anew"
  ) {
    val executors = new Executors(Map("1" -> "a", "2" -> "b"))
    val wishes = new PlacementWishes(executors)
    wishes.replace(Map(0 -> "1", 1 -> "2"), Some(4))
    val rdd = new PlacedRDD(
      spark.sparkContext.emptyRDD[org.apache.spark.sql.catalyst.InternalRow].repartition(4),
      wishes
    )
    def preferred = rdd.partitions.map(rdd.preferredLocations).toSeq
    assert(preferred == Seq(Seq("executor_a_1"), Seq("executor_b_2"), Nil, Nil))
    executors.alive = Map("2" -> "b")
    assert(preferred == Seq(Nil, Seq("executor_b_2"), Nil, Nil))
    assert(wishes.byPartition == Map(0 -> "1", 1 -> "2"))
  }

  test("a wish for an executor or a partition that is not there is refused, and what was wished stays") {
    val wishes = new PlacementWishes(new Executors(Map("1" -> "a", "2" -> "b")))
    wishes.replace(Map(0 -> "1"), None)
    val strange = refusal("SettingError")(wishes.replace(Map(0 -> "2", 1 -> "7"), None)).getMessage
    assert(strange.contains("executor '7' is not alive") && strange.contains("Name one of 1, 2"), strange)
    val outside = refusal("SettingError")(wishes.replace(Map(4 -> "2"), Some(4))).getMessage
    assert(outside.contains("partition 4 is not one of the query's 4"), outside)
    assert(wishes.byPartition == Map(0 -> "1"))
  }

  test("a query that has stopped, or keeps its state with another provider, is not placed") {
    for ((provider, says) <- Seq(ours -> "has stopped", stock -> "keeps it with"))
      withRun(_.groupBy("k").count(), "update", provider) { run =>
        val query = run.start()
        if (provider == ours) query.stop()
        val message = refusal("QueryError")(QueryRegistry.run(query).place(wished)).getMessage
        assert(message.contains(says), message)
      }
  }

  test("a query without state is told that there is nothing to place") {
    withRun(identity, "append", ours) { run =>
      val query = run.start()
      assert(
        refusal("QueryError")(QueryRegistry.run(query).place(wished)).getMessage.contains("keeps no state")
      )
    }
  }
}
