package org.apache.spark.sql.skewless.query

import java.nio.file.{Files, Path}

import io.skewless.table.Table
import org.apache.spark.sql.skewless.{Event, FullMatrix, Handed, Operator, Queries, SparkPrivate}
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.funsuite.AnyFunSuite

/**
 * A query of plain Spark is adopted, balanced, released, and goes on under plain Spark, in a session that
 * knows nothing of Skewless: every batch has the rows that plain Spark alone gives.
 */
class HandoverSuite extends AnyFunSuite with Handed {

  private val format = "spark.sql.streaming.stateStore.checkpointFormatVersion"

  private val chosen = Seq(
    "dropDuplicates",
    "session window",
    "stream-stream join, inner",
    "flatMapGroupsWithState",
    "transformWithState, timers"
  ).map(Operator.named)

  private val operators = if (FullMatrix.on) Operator.all else chosen

  /** Runs in which the query of a checkpoint goes on, and the batches that each is given. */
  private final class Life(run: Run, operator: Operator, batches: Seq[Seq[Event]], version: String) {
    private val confs = operator.conf :+ format -> version
    val all: Set[Int] = hashes(batches, operator.keys: _*)

    private def feed(query: StreamingQuery, from: Int, until: Int)(before: Int => Unit): Unit =
      try
        (from until until).foreach { i =>
          before(i)
          run.stream.addData(batches(i))
          query.processAllAvailable()
        }
      finally query.stop()

    /** Without extension, under Spark's provider. */
    def plain(from: Int, until: Int): Unit = withPlainConf(
      confs :+ "spark.sql.streaming.stateStore.providerClass" -> stock: _*
    ) {
      val query = operator
        .query(inPlainSession(run.source))
        .writeStream
        .option("checkpointLocation", run.checkpoint)
        .outputMode(operator.mode)
        .foreachBatch(run.collect _)
        .start()
      feed(query, from, until)(_ => ())
    }

    /** In the session with Skewless; `before` is called with the query before each batch. */
    def ours(from: Int, until: Int)(before: (StreamingQuery, Int) => Unit): Unit = withConf(confs: _*) {
      val query = run.start()
      feed(query, from, until)(before(query, _))
    }
  }

  private def withLife(operator: Operator, version: String, batches: Seq[Seq[Event]])(
      body: (Run, Life) => Unit
  ): Unit = withRun(operator.query, operator.mode, stock) { run =>
    body(run, new Life(run, operator, batches, version))
  }

  for (
    (operator, i) <- operators.zipWithIndex;
    version <- if (FullMatrix.on) Seq("1", "2") else Seq((i % 2 + 1).toString)
  )
    test(s"plain, adopted, balanced, released, plain again: ${operator.name}, checkpoint format $version") {
      val batches = input(9)
      withLife(operator, version, batches) { (run, life) =>
        life.plain(0, 2)
        adopting {
          life.ours(2, 8) { (query, batch) =>
            if (batch == 3) // entry 3 is not written yet
              refusal("NotYetError")(Queries.publish(query, table(life.all, 1), limits))
            if (batch == 4) Queries.publish(query, table(life.all, 1), limits)
            if (batch == 5) Queries.publish(query, table(life.all, 2), limits)
            if (batch == 6) assert(Queries.release(query, limits) == 6)
            if (batch == 7) {
              assert(Queries.release(query, limits) == 6, "again gives the same batch")
              refusal("QueryError")(Queries.publish(query, table(life.all, 1), limits))
              SparkPrivate.drainListeners(spark.sparkContext)
              val swaps = Queries.swaps(query)
              assert(swaps.map(_.batch) == Seq(4, 5, 6) && swaps.forall(_.rows > 0), s"state moved: $swaps")
            }
          }
        }
        life.plain(8, 9)
        val expected = (0 to 8).map(b => b.toLong -> (if (b >= 3 && b <= 6) "ours" else "Spark's")).toMap
        assert(owners(run.checkpoint) == expected)
        same(run.outcome, plain(operator, batches))
      }
    }

  test("a control: plain Spark on a checkpoint that was not released gives other rows") {
    val (operator, batches) = (Operator.named("count"), input(7))
    withLife(operator, "1", batches) { (run, life) =>
      life.plain(0, 2)
      adopting(life.ours(2, 5) { (query, batch) =>
        if (batch == 4) Queries.publish(query, table(life.all, 1), limits)
      })
      val entry = Path.of(run.checkpoint, "offsets", "4")
      val text = Files.readString(entry)
      assert(text.contains(ours))
      Files.delete(entry.resolveSibling(".4.crc"))
      Files.writeString(entry, text.replace(ours, stock))
      life.plain(5, 7)
      val (found, expected) = (run.outcome.rows, plain(operator, batches).rows)
      assert(found.keySet == expected.keySet && (5L to 6L).exists(b => found(b) != expected(b)))
      val error = intercept[Exception](adopting(life.ours(6, 7)((_, _) => ())))
      assert(error.getMessage.contains("cannot be adopted"), error.getMessage)
    }
  }

  test("a query is adopted and released again and again") {
    val (operator, batches) = (Operator.named("count, no codegen"), input(12))
    withLife(operator, "2", batches) { (run, life) =>
      for (first <- Seq(0, 6)) {
        life.plain(first, first + 1)
        adopting(life.ours(first + 1, first + 6) { (query, batch) =>
          if (batch == first + 3) Queries.publish(query, table(life.all, 1 + first), limits)
          if (batch == first + 4) assert(Queries.release(query, limits) == batch)
        })
      }
      assert(owners(run.checkpoint).collect { case (batch, "ours") => batch }.toSet == Set(2, 3, 4, 8, 9, 10))
      same(run.outcome, plain(operator.query, operator.mode, batches))
    }
  }

  test("before its first batch a query that will be adopted takes no table, not even an empty one") {
    withLife(Operator.named("count"), "1", input(2)) { (run, life) =>
      life.plain(0, 1)
      adopting {
        val query = run.start()
        for (table <- Seq(table(life.all, 1), Table.empty(n)))
          refusal("NotYetError")(Queries.publish(query, table, limits))
      }
    }
  }

  test("without the setting a query is left alone, and the refusal names the setting") {
    withLife(Operator.named("count"), "1", input(2)) { (run, life) =>
      life.plain(0, 1)
      life.ours(1, 2)((_, _) => ())
      assert(owners(run.checkpoint).values.toSet == Set("Spark's"))
    }
    withRun(Operator.named("count").query, "update", stock) { run =>
      run.stream.addData(input(1).head)
      val query = run.start()
      query.processAllAvailable()
      val error = refusal("QueryError")(Queries.publish(query, Table(n, Map(1 -> Seq(0))), limits))
      assert(error.getMessage.contains("spark.skewless.adopt=true"), error.getMessage)
      assert(refusal("QueryError")(Queries.release(query, limits)).getMessage.contains("plain Spark goes on"))
    }
  }

  test(
    "an HDFS-backed query is left alone with adoption on, and the refusal names the command that converts"
  ) {
    adopting(withRun(Operator.named("count").query, "update", Handover.HdfsBacked) { run =>
      run.stream.addData(input(1).head)
      val query = run.start()
      query.processAllAvailable()
      val error = refusal("QueryError")(Queries.publish(query, Table(n, Map(1 -> Seq(0))), limits))
      assert(error.getMessage.contains("skewless convert"), error.getMessage)
    })
  }

  test("a query that no table can level is not adopted") {
    adopting(withRun(_.groupBy().count(), "update", stock) { run =>
      val query = run.start()
      for (rows <- input(2)) { run.stream.addData(rows); query.processAllAvailable() }
      assert(owners(run.checkpoint) == Map(0L -> "Spark's", 1L -> "Spark's"))
    })
  }
}
