package org.apache.spark.sql.skewless.route

import io.skewless.table.Table
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.functions._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.{Operator, Queries, StatefulRun}
import org.apache.spark.sql.skewless.state.StateLayout
import org.apache.spark.sql.streaming.StreamingQueryException
import org.scalatest.funsuite.AnyFunSuite

/** Which stateful stages are routed, and which are refused by name before any row moves. */
class RouteStatefulStagesSuite extends AnyFunSuite with StatefulRun {

  private val batches = input(3)
  private lazy val moves = table(hashes(batches, "k"), 1)

  /** The refusal of a table after one batch, and that the query then goes on as plain Spark does. */
  private def refusedAfterABatch(
      query: DataFrame => DataFrame,
      mode: String,
      says: String,
      provider: String = ours
  ): Unit = {
    val expected = plain(query, mode, batches)
    withRun(query, mode, provider) { run =>
      val running = run.start()
      run.stream.addData(batches.head)
      running.processAllAvailable()
      val message = refusal("QueryError")(Queries.publish(running, moves, limits)).getMessage
      assert(message.contains(says), message)
      batches.tail.foreach { rows => run.stream.addData(rows); running.processAllAvailable() }
      same(run.outcome, expected)
      assert(!java.nio.file.Files.exists(run.dir.resolve("checkpoint/_skewless/pins")), "nothing was pinned")
    }
  }

  test("state that another provider keeps") {
    refusedAfterABatch(
      _.groupBy("k").count(),
      "update",
      "keeps it with org.apache.spark.sql.execution",
      provider = stock
    )
  }

  test("an aggregate without keys: all rows meet in one partition") {
    refusedAfterABatch(_.agg(count("*"), sum("v")), "update", "meet in one partition")
  }

  test("a limit") {
    refusedAfterABatch(_.limit(70), "append", "meet in one partition")
  }

  test("a join whose state has format 4") {
    withConf(SQLConf.STREAMING_JOIN_STATE_FORMAT_VERSION.key -> "4") {
      refusedAfterABatch(Operator.named("stream-stream join, inner").query, "append", "state format 4")
    }
  }

  test("a stage that also reads a bucketed table without a shuffle") {
    withConf(SQLConf.SHUFFLE_PARTITIONS.key -> "4") {
      spark
        .range(40)
        .select(concat(lit("key-"), col("id")).as("k"), col("id"))
        .write
        .bucketBy(4, "k")
        .mode("overwrite")
        .saveAsTable("bucketed")
      try
        refusedAfterABatch(
          _.groupBy("k").count().join(spark.table("bucketed"), "k"),
          "update",
          "without a shuffle"
        )
      finally spark.sql("DROP TABLE bucketed")
    }
  }

  test("state that was not placed by the whole key") {
    withConf(SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION.key -> "false") {
      refusedAfterABatch(_.groupBy("k").count(), "update", "useStrictDistribution is false")
    }
  }

  test("a split of an atomic operator's key") {
    withRun(_.groupBy("k").count(), "update", ours) { run =>
      val query = run.start()
      val message =
        refusal("QueryError")(Queries.publish(query, Table(n, Map(5 -> Seq(0, 1))), limits)).getMessage
      assert(message.contains("keeps one state per key") && message.contains("splits 1 keys"), message)
    }
  }

  test("a query that starts again is told to wait for its first batch, since its plan is not known") {
    withRun(_.groupBy("k").count(), "update", ours) { run =>
      val first = run.start()
      run.stream.addData(batches.head)
      first.processAllAvailable()
      first.stop()
      val again = run.start()
      val message = refusal("NotYetError")(Queries.publish(again, moves, limits)).getMessage
      assert(message.contains("Publish after that batch"), message)
      run.stream.addData(batches(1))
      again.processAllAvailable()
      assert(Queries.publish(again, moves, limits) == (1, 2))
    }
  }

  test(
    "a plan that can no longer be routed, once a table has placed the state, stops the query before a row " +
      "is read"
  ) {
    withRun(_.groupBy("k").count(), "update", ours) { run =>
      val query = run.start()
      run.stream.addData(batches.head)
      query.processAllAvailable()
      Queries.publish(query, moves, limits)
      run.stream.addData(batches(1))
      query.processAllAvailable()
      query.stop()
      spark
        .range(40)
        .select(concat(lit("key-"), col("id")).as("k"), col("id"))
        .write
        .bucketBy(4, "k")
        .mode("overwrite")
        .saveAsTable("late")
      try {
        val other = run.source.groupBy("k").count().join(spark.table("late"), "k")
        val again =
          other.writeStream
            .option("checkpointLocation", run.checkpoint)
            .outputMode("update")
            .foreachBatch(run.collect _)
            .start()
        run.stream.addData(batches(2))
        val error = intercept[StreamingQueryException](again.processAllAvailable())
        assert(
          error.getMessage.contains("cannot be routed by it") && !run.seen.containsKey(2L),
          error.getMessage
        )
      } finally spark.sql("DROP TABLE late")
    }
  }

  for (lost <- Seq("_skewless", "_skewless/pins/2"))
    test(
      s"a checkpoint whose $lost is lost stops the query: its state lies by a table that nobody knows any " +
        "more"
    ) {
      withRun(_.groupBy("k").count(), "update", ours) { run =>
        val query = run.start()
        batches.take(2).zipWithIndex.foreach { case (rows, i) =>
          run.stream.addData(rows)
          query.processAllAvailable()
          Queries.publish(query, table(hashes(batches, "k"), i + 1), limits)
        }
        query.stop()
        org.apache.spark.util.Utils.deleteRecursively(run.dir.resolve(s"checkpoint/$lost").toFile)
        run.stream.addData(batches(2))
        val error = intercept[StreamingQueryException](run.start().processAllAvailable())
        assert(
          error.getMessage.contains("lies by epoch 2, and the pin that names it is missing"),
          error.getMessage
        )
        assert(!run.seen.containsKey(2L))
      }
    }

  test("another number of shuffle partitions in the session does not matter: the checkpoint's own holds") {
    withRun(_.groupBy("k").count(), "update", ours) { run =>
      val query = run.start()
      run.stream.addData(batches.head)
      query.processAllAvailable()
      Queries.publish(query, moves, limits)
      run.stream.addData(batches(1))
      query.processAllAvailable()
      query.stop()
      withConf(SQLConf.SHUFFLE_PARTITIONS.key -> "7") {
        val again = run.start()
        run.stream.addData(batches(2))
        again.processAllAvailable()
      }
      same(run.outcome, plain(_.groupBy("k").count(), "update", batches))
    }
  }

  test("a store that is rewritten from scratch, as Spark's offline repartition does, is refused") {
    withRun(_.groupBy("k").count(), "update", ours) { run =>
      val query = run.start()
      run.stream.addData(batches.head)
      query.processAllAvailable()
      query.stop()
      val conf = spark.sessionState.newHadoopConf()
      val root = new org.apache.hadoop.fs.Path(run.checkpoint, "state")
      val layout = StateLayout.read(root, 0, Set(0L), joinFormat = 2, conf).head
      val store = new org.apache.spark.sql.execution.streaming.state.StateStoreConf(spark.sessionState.conf)
      val provider = layout.open(root.toString, 1, store, conf)
      try
        assert(
          refusal("CheckpointError")(provider.getStore(1, None, false, loadEmpty = true)).getMessage
            .contains("from scratch")
        )
      finally provider.close()
    }
  }
}
