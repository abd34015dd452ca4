package org.apache.spark.sql.skewless.query

import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import io.skewless.{SkewlessException, TestSpark}
import io.skewless.table.Table
import org.apache.spark.sql.{Dataset, Row}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.checkpoint.ReleaseCheckpoint
import org.apache.spark.sql.skewless.{
  Event,
  FileRun,
  FullMatrix,
  HaltPoint,
  HaltingFileSystem,
  Handed,
  Operator
}
import org.apache.spark.sql.skewless.Queries
import org.apache.spark.sql.streaming.Trigger
import org.scalatest.funsuite.AnyFunSuite

/**
 * The power goes at each point of adopting and of releasing; the same step is then run again, and the query's
 * life goes on to its end under plain Spark. Every batch must have the rows that plain Spark gives.
 */
class HandoverCrashSuite extends AnyFunSuite with Handed {

  private val points = Seq(
    // batch 2 adopts, and batch 3 is the first whose entry names our provider
    "after the entry of the batch that adopts" -> HaltPoint("renamed", "/offsets/2$"),
    "after some states of the batch that adopts" -> HaltPoint("renamed", "/state/.*/3([.]|_)[^/]*$", 2),
    "before the commit of the batch that adopts" -> HaltPoint("create", "/commits/[.]2[.]"),
    "after the commit of the batch that adopts" -> HaltPoint("renamed", "/commits/2$"),
    "before the first entry of ours" -> HaltPoint("rename", "/offsets/3$"),
    "after the first entry of ours" -> HaltPoint("renamed", "/offsets/3$"),
    "before the first pin" -> HaltPoint("create", "/pins/[.]4[.]"),
    // batch 7 takes the keys home, and batch 8 is the first whose entry names Spark's
    "before the pin of the batch that releases" -> HaltPoint("create", "/pins/[.]7[.]"),
    "after the pin of the batch that releases" -> HaltPoint("renamed", "/pins/7$"),
    "after the entry of the batch that releases" -> HaltPoint("renamed", "/offsets/7$"),
    "while keys travel home" -> HaltPoint("create", "/_skewless/moves/7-", 2),
    "after some states of the batch that releases" -> HaltPoint("renamed", "/state/.*/8([.]|_)[^/]*$", 2),
    "before the commit of the batch that releases" -> HaltPoint("create", "/commits/[.]7[.]"),
    "after the commit of the batch that releases" -> HaltPoint("renamed", "/commits/7$"),
    "before the first entry that is Spark's again" -> HaltPoint("rename", "/offsets/8$"),
    "after the first entry that is Spark's again" -> HaltPoint("renamed", "/offsets/8$"),
    "before the commit of that batch" -> HaltPoint("create", "/commits/[.]8[.]")
  )

  private val quick = Set(1, 5, 10, 14)
  private val operators =
    Seq("count", "dropDuplicates, then count, on one exchange", "session window").map(Operator.named)

  for (
    ((point, at), i) <- points.zipWithIndex if FullMatrix.on || quick(i);
    (operator, j) <- operators.zipWithIndex if FullMatrix.on || i % operators.size == j;
    format <- if (FullMatrix.on) Seq("1", "2") else Seq((i % 2 + 1).toString)
  )
    test(s"the power goes $point: ${operator.name}, checkpoint format $format") {
      val batches = input(10)
      val dir = Files.createTempDirectory("skewless-handover")
      try {
        val life = new Life(dir, operator, format, batches)
        HaltingFileSystem.die(dir, at)
        if (point == "while keys travel home") TestSpark.withFiles()(life.whole()) else life.whole()
        assert(Files.exists(dir.resolve("fired")), "the power did go there")
        val possible = asRead(point, batches).map(plain(operator.query, operator.mode, _).rows)
        val expected = possible.find(_ == life.rows).getOrElse(possible.head)
        assert(life.rows.keySet == expected.keySet)
        expected.toSeq.sortBy(_._1).foreach { case (batch, rows) =>
          assert(life.rows(batch) == rows, s"batch $batch")
        }
        assert(life.moved >= 2, "keys did move, and went home")
      } finally {
        HaltingFileSystem.revive(dir)
        org.apache.spark.util.Utils.deleteRecursively(dir.toFile)
      }
    }

  /**
   * The input by batch. Spark's file source notes a file before the entry of its batch is written: with the
   * power gone in between, it gives that file together with the next. Which of the two is read first is open,
   * and dropDuplicatesWithinWatermark keeps the row that comes first.
   */
  private def asRead(point: String, batches: Seq[Seq[Event]]): Seq[Seq[Seq[Event]]] =
    if (point != "before the first entry of ours") Seq(batches)
    else
      Seq(batches(3) ++ batches(4), batches(4) ++ batches(3)).map { both =>
        batches.take(3) ++ Seq(both) ++ batches.drop(5)
      }

  /** One query, step by step; a step that is cut off is run again once. */
  private final class Life(dir: Path, operator: Operator, format: String, batches: Seq[Seq[Event]]) {
    private val seen = new ConcurrentHashMap[Long, Seq[String]]()
    private val all = hashes(batches, operator.keys: _*)
    private val files = new FileRun(dir, operator, format)
    private val name = dir.getFileName.toString
    private val tables = Map(4L -> table(all, 1), 5L -> table(all, 2))
    private val checkpoint = s"halt:$dir/checkpoint"
    private val confs = operator.conf ++ Seq(
      "spark.sql.streaming.stateStore.checkpointFormatVersion" -> format,
      "spark.sql.streaming.stateStore.providerClass" -> stock
    )

    def rows: Map[Long, Seq[String]] = seen.asScala.toMap

    /** How many batches moved state. */
    def moved: Int = dir.resolve("checkpoint/_skewless/pins").toFile.list().count(_.matches("[0-9]+"))

    def whole(): Unit = {
      step(2)(plainly())
      step(6)(
        adopting(ours((id, publish) => tables.get(id + 1).filterNot(_ => isPinned(id + 1)).foreach(publish)))
      )
      step(9)(ours((id, _) => if (id >= 6 && isOurs) Queries.release(query, limits)))
      step(9)(if (isOurs) ReleaseCheckpoint.release(spark, checkpoint))
      step(10)(plainly())
    }

    private def step(until: Int)(body: => Unit): Unit = {
      files.writeInput(batches.take(until))
      try body
      catch {
        case _: Exception if Files.exists(dir.resolve("fired")) =>
          StateStore.unloadAll()
          HaltingFileSystem.revive(dir)
          body
      }
    }

    private def isPinned(batch: Long): Boolean =
      Files.exists(dir.resolve(s"checkpoint/_skewless/pins/$batch"))

    private def isOurs: Boolean = {
      val known = owners(s"$dir/checkpoint")
      known(known.keys.max) == "ours"
    }

    private def query = spark.streams.active.find(_.name == name).get

    private def plainly(): Unit = withPlainConf(confs: _*)(run(plainSession)((_, _) => ()))

    private def ours(each: (Long, Table => Unit) => Unit): Unit = withConf(confs: _*) {
      run(spark)((id, _) => each(id, publish))
    }

    /** After a crash another batch may adopt, and take no table yet. */
    private def publish(table: Table): Unit =
      try { Queries.publish(query, table, limits); () }
      catch { case e: SkewlessException if e.code == "NotYetError" => }

    private def run(session: SparkSession)(each: (Long, Dataset[Row]) => Unit): Unit = {
      val source = session.readStream
        .schema("k STRING, g INT, v BIGINT, t BIGINT")
        .option("maxFilesPerTrigger", 1)
        .json(s"halt:$dir/in")
      operator
        .query(source.withColumn("t", timestamp_seconds(col("t"))))
        .writeStream
        .queryName(name)
        .option("checkpointLocation", checkpoint)
        .outputMode(operator.mode)
        .trigger(Trigger.AvailableNow())
        .foreachBatch { (batch: Dataset[Row], id: Long) =>
          seen.put(id, batch.collect().map(_.toString).sorted.toSeq)
          each(id, batch)
        }
        .start()
        .awaitTermination()
    }
  }
}
