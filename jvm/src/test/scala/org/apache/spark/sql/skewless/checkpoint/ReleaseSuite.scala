package org.apache.spark.sql.skewless.checkpoint

import java.nio.file.{Files, Path}

import scala.util.Try

import io.skewless.table.Table
import org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionRunner
import org.apache.spark.sql.skewless.{Event, HaltPoint, HaltingFileSystem, Handed, Operator, Queries}
import org.scalatest.funsuite.AnyFunSuite

/**
 * `skewless release` and `skewless mend`: the newest entry of a stopped query's offset log, and nothing else.
 */
class ReleaseSuite extends AnyFunSuite with Handed {
  private val operator = Operator.named("count")
  private val batches = input(8)
  private lazy val all = hashes(batches, operator.keys: _*)

  /** Runs the next batches in the session with Skewless, publishing before some of them. */
  private def go(run: Run, from: Int, until: Int, tables: (Int, Table)*): Unit = {
    val query = run.start()
    try
      (from until until).foreach { i =>
        tables.toMap.get(i).foreach(Queries.publish(query, _, limits))
        run.stream.addData(batches(i))
        query.processAllAvailable()
      }
    finally query.stop()
  }

  private def plainOn(run: Run, rows: Seq[Seq[Event]]): Unit = {
    val query = operator
      .query(inPlainSession(run.source))
      .writeStream
      .option("checkpointLocation", run.checkpoint)
      .outputMode(operator.mode)
      .foreachBatch(run.collect _)
      .start()
    try rows.foreach { some => run.stream.addData(some); query.processAllAvailable() }
    finally query.stop()
  }

  private def withOurs(body: Run => Unit): Unit = withRun(operator.query, operator.mode, ours)(body)
  private def entry(run: Run, batch: Int): Path = Path.of(run.checkpoint, "offsets", batch.toString)

  private def refused(run: Run, words: String): Unit = {
    val before = Files.readAllBytes(entry(run, 3)).toSeq
    val error = refusal("CheckpointError")(ReleaseCheckpoint.release(spark, run.checkpoint))
    assert(error.getMessage.contains(words), error.getMessage)
    assert(Files.readAllBytes(entry(run, 3)).toSeq == before)
  }

  test("a query whose keys are at home is released, and plain Spark goes on; undone, it is as before") {
    withOurs { run =>
      go(run, 0, 5, 2 -> table(all, 1), 4 -> Table.empty(n))
      val before = Files.readAllBytes(entry(run, 4)).toSeq
      ReleaseCheckpoint.release(spark, run.checkpoint)
      assert(owners(run.checkpoint)(4) == "Spark's")
      assert(ReleaseCheckpoint.release(spark, run.checkpoint).contains("already"))
      ReleaseCheckpoint.undo(spark, run.checkpoint)
      assert(Files.readAllBytes(entry(run, 4)).toSeq == before)
      go(run, 5, 6)
      refusal("CheckpointError")(ReleaseCheckpoint.undo(spark, run.checkpoint))
      ReleaseCheckpoint.release(spark, run.checkpoint)
      plainOn(run, batches.drop(6))
      same(run.outcome, plain(operator, batches))
    }
  }

  test("keys that are not at home, or on their way, are refused with what to do, and nothing is changed") {
    withOurs { run =>
      go(run, 0, 4, 3 -> table(all, 1))
      refused(run, "balancer.release(query)")
      val query = run.start()
      query.processAllAvailable()
      query.stop()
    }
    withOurs { run =>
      val query = run.start()
      for (i <- 0 until 4) {
        if (i == 2) Queries.publish(query, table(all, 1), limits)
        run.stream.addData(batches(i))
        query.processAllAvailable()
      }
      Queries.publish(query, Table.empty(n), limits)
      query.stop()
      refused(run, "Batch 4 takes them home")
    }
  }

  test("a batch that has not finished must find its keys at home before it and after it") {
    withOurs { run =>
      go(run, 0, 4, 1 -> table(all, 1), 3 -> Table.empty(n))
      Files.delete(Path.of(run.checkpoint, "commits", "3"))
      Files.deleteIfExists(Path.of(run.checkpoint, "commits", ".3.crc"))
      refused(run, "Batch 3 takes them home")
      go(run, 4, 5)
      Files.delete(Path.of(run.checkpoint, "commits", "4"))
      Files.deleteIfExists(Path.of(run.checkpoint, "commits", ".4.crc"))
      ReleaseCheckpoint.release(spark, run.checkpoint)
      plainOn(run, batches.slice(5, 6))
      same(run.outcome, plain(operator, batches.take(6)))
    }
  }

  for (
    (point, at) <- Seq(
      "before the old entry is kept" -> HaltPoint("create", "/kept/"),
      "after the old entry is kept" -> HaltPoint("renamed", "/kept/2$"),
      "before the new entry is in its place" -> HaltPoint("rename", "/offsets/2$"),
      "after the new entry is in its place" -> HaltPoint("renamed", "/offsets/2$")
    )
  )
    test(s"broken off $point, a release is done or not begun") {
      withOurs { run =>
        go(run, 0, 3, 1 -> table(all, 1), 2 -> Table.empty(n))
        HaltingFileSystem.die(run.dir, at)
        assert(Try(ReleaseCheckpoint.release(spark, s"halt:${run.checkpoint}")).isFailure)
        assert(Files.exists(run.dir.resolve("fired")), "it was broken off there")
        HaltingFileSystem.revive(run.dir)
        Files.deleteIfExists(entry(run, 2).resolveSibling(".2.crc")) // `halt:` keeps no checksums
        val isDone = point.startsWith("after the new")
        assert(owners(run.checkpoint)(2) == (if (isDone) "Spark's" else "ours"))
        ReleaseCheckpoint.release(spark, run.checkpoint)
        plainOn(run, batches.slice(3, 5))
        same(run.outcome, plain(operator, batches.take(5)))
      }
    }

  private def repartition(run: Run, partitions: Int): Long =
    new OfflineStateRepartitionRunner(spark, run.checkpoint, partitions).run()

  test("Spark's repartition is refused on a checkpoint of ours, and what it left behind is mended") {
    withOurs { run =>
      go(run, 0, 3, 1 -> table(all, 1))
      intercept[Exception](repartition(run, 2 * n))
      assert(Files.exists(entry(run, 3)), "Spark leaves the entry of its own batch")
      intercept[Exception](run.start().processAllAvailable())
      assert(
        refusal("CheckpointError")(ReleaseCheckpoint.release(spark, run.checkpoint)).getMessage
          .contains("mend")
      )
      assert(MendCheckpoint(spark, run.checkpoint).contains("batch 3"))
      assert(!Files.exists(entry(run, 3)))
      assert(MendCheckpoint(spark, run.checkpoint).contains("nothing to mend"))
      go(run, 3, 6, 4 -> Table.empty(n))
      same(run.outcome, plain(operator, batches.take(6)))
    }
  }

  test("released, repartitioned by Spark, adopted again: old tables of another number do not disturb") {
    withOurs { run =>
      go(run, 0, 3, 1 -> table(all, 1), 2 -> Table.empty(n))
      ReleaseCheckpoint.release(spark, run.checkpoint)
      assert(repartition(run, 2 * n) == 3)
      adopting {
        val query = run.start()
        run.stream.addData(batches(3))
        query.processAllAvailable()
        run.stream.addData(batches(4))
        query.processAllAvailable()
        refusal("TableError")(Queries.publish(query, table(all, 1), limits))
        assert(Queries.publish(query, table(all, 1, 2 * n), limits) == (3, 6))
        run.stream.addData(batches(5))
        query.processAllAvailable()
        assert(Queries.release(query, limits) == 7)
        run.stream.addData(batches(6))
        query.processAllAvailable()
        query.stop()
      }
      ReleaseCheckpoint.release(spark, run.checkpoint)
      plainOn(run, batches.slice(7, 8))
      val found = run.outcome.rows.toSeq.sortBy(_._1).map(_._2)
      assert(found == plain(operator, batches).rows.toSeq.sortBy(_._1).map(_._2))
    }
  }

  test("a repartition that plain Spark has not finished is left to Spark") {
    withRun(operator.query, operator.mode, stock) { run =>
      go(run, 0, 2)
      HaltingFileSystem.die(run.dir, HaltPoint("create", "/commits/[.]2[.]"))
      intercept[Exception](
        new OfflineStateRepartitionRunner(spark, s"halt:${run.checkpoint}", 2 * n).run()
      )
      HaltingFileSystem.revive(run.dir)
      val error = refusal("CheckpointError")(MendCheckpoint(spark, run.checkpoint))
      assert(error.getMessage.contains(s"${2 * n}"), error.getMessage)
    }
  }
}
