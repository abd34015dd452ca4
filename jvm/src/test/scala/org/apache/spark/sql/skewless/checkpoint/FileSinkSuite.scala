package org.apache.spark.sql.skewless.checkpoint

import java.nio.file.Files

import scala.util.Try

import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.skewless.query.Handover
import org.apache.spark.sql.skewless.{Event, FullMatrix, HaltPoint, HaltingFileSystem, Handed, Operator}
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.funsuite.AnyFunSuite

/**
 * A query that writes with Spark's own file sink is converted: its folder stays readable by plain Spark, has
 * every row once, and the query goes on.
 */
class FileSinkSuite extends AnyFunSuite with Handed {

  private val operator = Operator.named("dropDuplicates")
  private val batches = input(6)

  /** A query from memory to files, whose files and checkpoint may lie where the power can be cut. */
  private final class Filing(run: Run, scheme: String) {
    val checkpoint = s"$scheme${run.checkpoint}"
    val dir = s"$scheme${run.dir.resolve("out")}"

    def start(): StreamingQuery = operator
      .query(run.source)
      .select(col("k"), col("g"))
      .writeStream
      .option("checkpointLocation", run.checkpoint)
      .outputMode("append")
      .format("parquet")
      .start(run.dir.resolve("out").toString)

    def feed(rows: Seq[Seq[Event]]): Unit = {
      val query = start()
      try rows.foreach { batch => run.stream.addData(batch); query.processAllAvailable() }
      finally query.stop()
    }

    /** As plain Spark reads them, by the sink's log. */
    def rows: Seq[String] =
      plainSession.read.parquet(run.dir.resolve("out").toString).collect().map(_.toString).sorted.toSeq
  }

  private val expected =
    batches.flatten.map(event => (event.k, event.g)).distinct.map { case (k, g) => s"[$k,$g]" }.sorted

  /** So many batches under the HDFS-backed provider; the sink's log is compacted every third batch. */
  private def withFiles(first: Int)(body: Run => Unit): Unit =
    withConf("spark.sql.streaming.fileSink.log.compactInterval" -> "3")(
      withRun(operator.query, operator.mode, Handover.HdfsBacked) { run =>
        new Filing(run, "").feed(batches.take(first))
        body(run)
      }
    )

  private def convert(filing: Filing, sink: Option[String]): Unit = {
    val conversion = new ConvertCheckpoint(spark, filing.checkpoint, 1, sink)
    (0 until conversion.stores).foreach(conversion.copy)
    conversion.commit()
    ()
  }

  /** Batch 2 is one in which the sink's log is compacted, batch 3 is not. */
  for (first <- Seq(2, 3))
    test(s"plain Spark reads every row, and the query goes on: conversion in batch $first") {
      withFiles(first) { run =>
        val filing = new Filing(run, "")
        convert(filing, Some(filing.dir))
        filing.feed(batches.drop(first))
        assert(filing.rows == expected)
      }
    }

  test("a control: without the entry the folder cannot be read any more, or the query does not go on") {
    withFiles(3) { run =>
      val filing = new Filing(run, "")
      convert(filing, None)
      assert(Try { filing.feed(batches.drop(3)); filing.rows }.isFailure)
    }
  }

  private val points = Seq(
    "while a store is written" -> HaltPoint("renamed", "/state/.*4[.]zip$", 3),
    "before the sink is noted" -> HaltPoint("rename", "/kept/file-sink-3$"),
    "before it has begun" -> HaltPoint("rename", "/offsets/3$"),
    "after it has begun" -> HaltPoint("renamed", "/offsets/3$"),
    "before the sink's entry" -> HaltPoint("rename", "/_spark_metadata/3$"),
    "after the sink's entry" -> HaltPoint("renamed", "/_spark_metadata/3$"),
    "before it is committed" -> HaltPoint("rename", "/commits/3$"),
    "after it is committed" -> HaltPoint("renamed", "/commits/3$")
  )
  private val written = Set("after the sink's entry", "before it is committed")

  private val quick = Set("after it has begun", "before the sink's entry", "after the sink's entry")

  for ((point, at) <- points if FullMatrix.on || quick(point))
    test(s"broken off $point, a conversion is finished, or taken back") {
      for (again <- if (FullMatrix.on) Seq(true, false) else Seq(point == "before the sink's entry"))
        withFiles(3) { run =>
          val (cut, filing) = (new Filing(run, "halt:"), new Filing(run, ""))
          HaltingFileSystem.die(run.dir, at)
          assert(Try(convert(cut, Some(cut.dir))).isFailure)
          assert(Files.exists(run.dir.resolve("fired")), "it was broken off there")
          HaltingFileSystem.revive(run.dir)
          StateStore.unloadAll()
          if (point != "after it is committed") {
            if (again) convert(filing, Some(filing.dir))
            else if (written(point)) {
              val error = refusal("CheckpointError")(MendCheckpoint(spark, run.checkpoint))
              assert(error.getMessage.contains("convert` again"), error.getMessage)
              convert(filing, None) // where the sink is was noted
            } else MendCheckpoint(spark, run.checkpoint)
          }
          filing.feed(batches.drop(3))
          assert(filing.rows == expected)
        }
    }

  test("a folder that is not this query's is refused, and nothing is written") {
    withFiles(3) { run =>
      val filing = new Filing(run, "")
      val other = run.dir.resolve("other")
      Files.createDirectories(other)
      def refused(words: String): Unit = {
        val error = refusal("CheckpointError")(
          new ConvertCheckpoint(spark, filing.checkpoint, 1, Some(other.toString))
        )
        assert(error.getMessage.contains(words), error.getMessage)
      }
      refused("holds no _spark_metadata")
      Files.createDirectories(other.resolve("_spark_metadata"))
      Files.writeString(other.resolve("_spark_metadata/0"), "v1")
      refused("its newest batch is 2")
      filing.feed(batches.drop(3))
      assert(filing.rows == expected)
    }
  }
}
