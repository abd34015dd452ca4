package org.apache.spark.sql.skewless.checkpoint

import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.hadoop.fs.{Path => HadoopPath}
import org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionRunner
import org.apache.spark.sql.skewless.query.Handover
import org.apache.spark.sql.skewless.{
  Event,
  FullMatrix,
  HaltPoint,
  HaltingFileSystem,
  Handed,
  Operator,
  Queries
}
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.funsuite.AnyFunSuite

/**
 * An HDFS-backed query is converted, goes on under Spark's RocksDB provider, is adopted and balanced: every
 * batch has the rows of a query that nobody has touched.
 */
class ConvertSuite extends AnyFunSuite with Handed {

  private val format = "spark.sql.streaming.stateStore.checkpointFormatVersion"

  /** What the HDFS-backed provider can keep: no column families. */
  private val convertible = Operator.all.filterNot(operator =>
    operator.name.startsWith("transformWithState") || operator.name.contains("one store")
  ) ++ Seq(firstJoinFormat, new Operator("sum over all", "update", Nil)(_.groupBy().sum("v")))

  private def firstJoinFormat: Operator = {
    val second = Operator.named("stream-stream join, inner")
    new Operator(
      "stream-stream join, inner, first format",
      second.mode,
      second.keys,
      "spark.sql.streaming.join.stateFormatVersion" -> "1"
    )(second.query)
  }

  private val chosen = Set(
    "session window",
    "flatMapGroupsWithState, event-time timeout",
    "stream-stream join, inner, first format",
    "two aggregates with different keys",
    "sum over all"
  )

  private def feed(run: Run, query: StreamingQuery, batches: Seq[Seq[Event]]): Unit =
    try batches.foreach { rows => run.stream.addData(rows); query.processAllAvailable() }
    finally query.stop()

  /** Three batches under the HDFS-backed provider. */
  private def withOld(operator: Operator, batches: Seq[Seq[Event]])(body: Run => Unit): Unit =
    withConf(operator.conf: _*)(withRun(operator.query, operator.mode, Handover.HdfsBacked) { run =>
      feed(run, run.start(), batches.take(3))
      body(run)
    })

  private def convert(location: String, version: Int = 1): Long = {
    val conversion = new ConvertCheckpoint(spark, location, version)
    val rows = (0 until conversion.stores).map(conversion.copy).sum
    conversion.commit()
    rows
  }

  /** The rows of each batch in turn: a conversion is a batch without rows. */
  private def inTurn(rows: Map[Long, Seq[String]]): Seq[Seq[String]] = rows.toSeq.sortBy(_._1).map(_._2)

  for (
    (operator, i) <- convertible.filter(o => FullMatrix.on || chosen(o.name)).zipWithIndex;
    version <- if (FullMatrix.on) Seq("1", "2") else Seq((i % 2 + 1).toString)
  )
    test(s"converted, adopted and balanced: ${operator.name}, into checkpoint format $version") {
      val batches = input(8)
      withOld(operator, batches) { run =>
        assert(convert(run.checkpoint, version.toInt) > 0)
        assert(owners(run.checkpoint) == (0L to 2L).map(_ -> Handover.HdfsBacked).toMap + (3L -> "Spark's"))
        withConf(format -> version) {
          feed(run, run.start(), batches.slice(3, 4))
          adopting {
            val query = run.start()
            if (operator.keys.nonEmpty) {
              for (rows <- batches.slice(4, 6)) { run.stream.addData(rows); query.processAllAvailable() }
              Queries.publish(query, table(hashes(batches, operator.keys: _*), 1), limits)
              feed(run, query, batches.drop(6))
            } else feed(run, query, batches.drop(4))
          }
        }
        val expected = plain(operator.query, operator.mode, batches).rows
        assert(inTurn(run.outcome.rows) == inTurn(expected) && expected.values.exists(_.nonEmpty))
        assert(!run.outcome.rows.contains(3L))
        ConvertCheckpoint.dropOld(spark, run.checkpoint)
        assert(oldFiles(run).isEmpty)
      }
    }

  private def oldFiles(run: Run): Seq[Path] =
    Files
      .walk(Path.of(run.checkpoint))
      .iterator
      .asScala
      .filter(_.toString.matches(".*[.](delta|snapshot)"))
      .toSeq

  test("a control: with the copy of one partition in the place of another, rows differ or the start fails") {
    val operator = Operator.named("count")
    val batches = input(4)
    withOld(operator, batches) { run =>
      val conversion = new ConvertCheckpoint(spark, run.checkpoint, 1)
      conversion.copy(0)
      // the copy of one partition is replaced by that of another
      val copies = Files
        .walk(Path.of(run.checkpoint, "state"))
        .iterator
        .asScala
        .filter(_.getFileName.toString.matches("4[.](zip|changelog)"))
        .toSeq
        .sorted
      assert(copies.size == n)
      for (file <- copies.tail) {
        Files.delete(file)
        Files.deleteIfExists(file.resolveSibling(s".${file.getFileName}.crc"))
        Files.copy(copies.head, file)
      }
      conversion.commit()
      val found = Try(feed(run, run.start(), batches.drop(3)))
      val expected = plain(operator.query, operator.mode, batches).rows
      assert(found.isFailure || inTurn(run.outcome.rows) != inTurn(expected))
    }
  }

  // -- broken off anywhere --------------------------------------------------------------------------------

  private val points = Seq(
    "while the first store is written" -> HaltPoint("create", "/state/0/0/.*4[.]zip"),
    "while a later store is written" -> HaltPoint("renamed", "/state/.*4[.]zip$", 3),
    "before it has begun" -> HaltPoint("create", "/offsets/[.]3[.]"),
    "after it has begun" -> HaltPoint("renamed", "/offsets/3$"),
    "before it is committed" -> HaltPoint("rename", "/commits/3$"),
    "after it is committed" -> HaltPoint("renamed", "/commits/3$")
  )

  for (((point, at), i) <- points.zipWithIndex)
    test(s"broken off $point, a conversion is done again, or taken back") {
      val operator = Operator.named("count")
      val batches = input(5)
      for (again <- if (FullMatrix.on) Seq(true, false) else Seq(i % 2 == 0)) withOld(operator, batches) {
        run =>
          HaltingFileSystem.die(run.dir, at)
          assert(Try(convert(s"halt:${run.checkpoint}")).isFailure)
          assert(Files.exists(run.dir.resolve("fired")), "it was broken off there")
          HaltingFileSystem.revive(run.dir)
          val isDone = point == "after it is committed"
          if (again && !isDone) convert(run.checkpoint)
          else if (!isDone) MendCheckpoint(spark, run.checkpoint)
          feed(run, run.start(), batches.drop(3))
          assert(inTurn(run.outcome.rows) == inTurn(plain(operator.query, operator.mode, batches).rows))
          val provider = if (again || isDone) "Spark's" else Handover.HdfsBacked
          assert(owners(run.checkpoint)(owners(run.checkpoint).keys.max) == provider)
      }
    }

  test("between begin and commit a start fails, loudly and without harm") {
    withOld(Operator.named("count"), input(4)) { run =>
      HaltingFileSystem.die(run.dir, HaltPoint("rename", "/commits/3$"))
      assert(Try(convert(s"halt:${run.checkpoint}")).isFailure)
      HaltingFileSystem.revive(run.dir)
      run.stream.addData(input(4).last)
      intercept[Exception](run.start().processAllAvailable())
      convert(run.checkpoint)
      feed(run, run.start(), Nil)
    }
  }

  test(
    "what Spark's refused repartition leaves on an HDFS-backed checkpoint is mended, and then it is converted"
  ) {
    val (operator, batches) = (Operator.named("count"), input(5))
    withOld(operator, batches) { run =>
      intercept[Exception](new OfflineStateRepartitionRunner(spark, run.checkpoint, 2 * n).run())
      intercept[Exception](run.start().processAllAvailable())
      assert(refusal("CheckpointError")(convert(run.checkpoint)).getMessage.contains("skewless mend"))
      assert(MendCheckpoint(spark, run.checkpoint).contains("batch 3"))
      convert(run.checkpoint)
      feed(run, run.start(), batches.drop(3))
      assert(inTurn(run.outcome.rows) == inTurn(plain(operator, batches).rows))
    }
  }

  // -- what is refused ------------------------------------------------------------------------------------

  test("what needs no conversion is refused, and so is a batch that has not finished") {
    withRun(Operator.named("count").query, "update", stock) { run =>
      feed(run, run.start(), input(1))
      assert(
        refusal("CheckpointError")(new ConvertCheckpoint(spark, run.checkpoint, 1)).getMessage.contains(stock)
      )
    }
    withOld(Operator.named("count"), input(3)) { run =>
      val commit = new HadoopPath(run.checkpoint, "commits/2")
      commit.getFileSystem(spark.sessionState.newHadoopConf()).delete(commit, false)
      val error = refusal("CheckpointError")(new ConvertCheckpoint(spark, run.checkpoint, 1))
      assert(error.getMessage.contains("let the batch finish"), error.getMessage)
    }
    refusal("CheckpointError")(
      new ConvertCheckpoint(spark, Files.createTempDirectory("skewless-none").toString, 1)
    )
  }
}
