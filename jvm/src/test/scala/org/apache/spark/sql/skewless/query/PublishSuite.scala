package org.apache.spark.sql.skewless.query

import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import io.skewless.{SkewlessConf, SkewlessException, TestSpark}
import io.skewless.table.Table
import org.apache.spark.SparkConf
import org.apache.spark.sql.{DataFrame, Dataset, Encoders, Row}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.Queries
import org.apache.spark.sql.skewless.route.Routing
import org.apache.spark.sql.streaming.{
  GroupState,
  GroupStateTimeout,
  OutputMode,
  StreamingQuery,
  StreamingQueryException
}
import org.scalatest.funsuite.AnyFunSuite

/**
 * Tables that are swapped while a stream runs: pinned to a batch, the same after a replay, and refused where
 * they would do harm.
 */
class PublishSuite extends AnyFunSuite with TestSpark {

  private val n = 4
  private val conf = SkewlessConf(new SparkConf(false))

  private lazy val hashes: Map[Long, Int] = spark
    .range(20)
    .select(col("id"), Routing.keyHash(spark, Seq(col("id"))))
    .collect()
    .map(row => row.getLong(0) -> row.getInt(1))
    .toMap

  private def moves(by: Int): Table =
    Table(n, hashes.values.map(h => h -> Seq(Math.floorMod(h + by, n))).toMap)
  private def routes(table: Table): Map[Long, Int] = hashes.view.mapValues(table.route).toMap

  /**
   * A stream over files, one file per batch, whose sink notes in which partition each key of each batch was.
   */
  private final class Stream(val dir: Path) {
    val placed = new ConcurrentHashMap[Long, Map[Long, Int]]()
    private var written = 0
    Files.createDirectories(dir.resolve("in"))

    def source: DataFrame =
      spark.readStream.schema("k LONG").option("maxFilesPerTrigger", 1).json(dir.resolve("in").toString)

    def add(): Unit = {
      Files.writeString(
        dir.resolve(f"in/.$written%05d"),
        hashes.keys.map(k => s"""{"k":$k}""").mkString("\n")
      )
      Files.move(dir.resolve(f"in/.$written%05d"), dir.resolve(f"in/$written%05d.json"))
      written += 1
    }

    def start(df: DataFrame = Routing.repartition(source, n, Seq(col("k")), None)): StreamingQuery = {
      val note = (batch: Dataset[Row], id: Long) => {
        val rows =
          batch.select(col("k"), spark_partition_id()).collect().map(row => row.getLong(0) -> row.getInt(1))
        assert(rows.length == hashes.size)
        placed.put(id, rows.toMap)
        ()
      }
      df.writeStream
        .option("checkpointLocation", dir.resolve("checkpoint").toString)
        .foreachBatch(note)
        .start()
    }

    def uncommit(batch: Long): Unit =
      Seq(s"$batch", s".$batch.crc").foreach(f => Files.deleteIfExists(dir.resolve(s"checkpoint/commits/$f")))
  }

  private def withStream(body: Stream => Unit): Unit = {
    val dir = Files.createTempDirectory("skewless-stream")
    try body(new Stream(dir))
    finally {
      spark.streams.active.foreach(_.stop())
      org.apache.spark.util.Utils.deleteRecursively(dir.toFile)
    }
  }

  test(
    "a published table takes effect at the batch it names, and every row of every batch is where its table " +
      "says"
  ) {
    withStream { stream =>
      stream.add()
      val query = stream.start()
      query.processAllAvailable()
      assert(Queries.latest(query).isEmpty)
      assert(Queries.publish(query, moves(1), conf) == (1, 1))
      stream.add()
      query.processAllAvailable()
      assert(Queries.publish(query, moves(2), conf) == (2, 2))
      assert(Queries.publish(query, Table.empty(n), conf) == (3, 3))
      stream.add()
      stream.add()
      query.processAllAvailable()
      val expected = Seq(Table.empty(n), moves(1), moves(2), Table.empty(n))
      expected.zipWithIndex.foreach { case (table, batch) =>
        assert(stream.placed.get(batch.toLong) == routes(table), s"batch $batch")
      }
      assert(Queries.latest(query).contains(Table(n, Map.empty, 3)))
    }
  }

  test("a replayed batch reads the epoch it ran under, though a newer table is pinned to the next batch") {
    withStream { stream =>
      stream.add()
      val query = stream.start()
      query.processAllAvailable()
      Queries.publish(query, moves(1), conf)
      stream.add()
      query.processAllAvailable()
      assert(Queries.publish(query, moves(2), conf) == (2, 2))
      query.stop()
      val first = stream.placed.get(1L)
      assert(first == routes(moves(1)))

      stream.placed.clear()
      stream.uncommit(1)
      stream.add()
      val again = stream.start()
      again.processAllAvailable()
      assert(stream.placed.keySet.asScala == Set(1L, 2L), "batch 1 did run again")
      assert(stream.placed.get(1L) == first && stream.placed.get(2L) == routes(moves(2)))
      assert(Queries.publish(again, moves(3), conf) == (3, 3), "epochs go on after a restart")
    }
  }

  test(
    "a batch that has started is not pinned any more: publishing inside foreachBatch reaches the next batch"
  ) {
    withStream { stream =>
      stream.add()
      val query = stream.start()
      query.processAllAvailable()
      query.stop()
      stream.uncommit(0) // batch 0 has started and will run again
      val held = new java.util.concurrent.CountDownLatch(1)
      val slow = (_: Dataset[Row], _: Long) => { held.await(); () }
      val again = Routing
        .repartition(stream.source, n, Seq(col("k")), None)
        .writeStream
        .option("checkpointLocation", stream.dir.resolve("checkpoint").toString)
        .foreachBatch(slow)
        .start()
      try assert(Queries.publish(again, moves(1), conf) == (1, 1))
      finally held.countDown()
    }
  }

  test("inside foreachBatch a routed exchange follows the published table") {
    withStream { stream =>
      val placed = new ConcurrentHashMap[Long, Map[Long, Int]]()
      val note = (batch: Dataset[Row], id: Long) => {
        val df = Routing.repartition(batch, n, Seq(col("k")), None)
        placed.put(
          id,
          df.select(col("k"), spark_partition_id())
            .collect()
            .map(row => row.getLong(0) -> row.getInt(1))
            .toMap
        )
        ()
      }
      stream.add()
      val query =
        stream.source.writeStream
          .option("checkpointLocation", stream.dir.resolve("c").toString)
          .foreachBatch(note)
          .start()
      query.processAllAvailable()
      assert(Queries.publish(query, moves(1), conf) == (1, 1))
      stream.add()
      query.processAllAvailable()
      assert(placed.get(0L) == routes(Table.empty(n)) && placed.get(1L) == routes(moves(1)))
    }
  }

  test("a query whose pinned table is damaged stops, and says which file") {
    withStream { stream =>
      stream.add()
      val query = stream.start()
      query.processAllAvailable()
      Queries.publish(query, moves(1), conf)
      query.stop()
      val file = stream.dir.resolve("checkpoint/_skewless/tables/1")
      Files.write(file, Files.readAllBytes(file).dropRight(1))
      stream.add()
      val again = stream.start()
      val error = intercept[StreamingQueryException](again.processAllAvailable())
      val causes = Iterator.iterate[Throwable](error)(_.getCause).takeWhile(_ != null).toSeq
      assert(causes.exists {
        case e: SkewlessException => e.code == "CheckpointError" && e.getMessage.contains("tables/1");
        case _ => false
      })
      assert(!stream.placed.containsKey(1L))
    }
  }

  // -- refusals: the old table stays in force
  // -------------------------------------------------------------------------------

  private def refused(
      query: StreamingQuery,
      table: Table,
      code: String,
      says: String,
      conf: SkewlessConf = conf
  ): Unit = {
    val before = Queries.latest(query)
    val message = refusal(code)(Queries.publish(query, table, conf)).getMessage
    assert(message.contains(says), message)
    assert(Queries.latest(query) == before)
  }

  test("a stopped query is refused") {
    withStream { stream =>
      stream.add()
      val query = stream.start()
      query.processAllAvailable()
      Queries.publish(query, moves(1), conf)
      query.stop()
      refused(query, moves(2), "QueryError", "it has stopped")
    }
  }

  test("a table for another number of partitions, and one with too many entries, are refused") {
    withStream { stream =>
      val query = stream.start()
      refused(query, Table(n + 1, Map(1 -> Seq(n))), "TableError", s"is for ${n + 1} partitions")
      val small = SkewlessConf(new SparkConf(false).set("spark.skewless.table.maxEntries", "3"))
      refused(query, moves(1), "TableError", "allows 3", small)
      assert(!Files.exists(stream.dir.resolve("checkpoint/_skewless")), "a refusal leaves no file")
      assert(Queries.publish(query, moves(1), conf) == (1, 0))
    }
  }

  test("a query without a routed exchange is refused, an empty table too") {
    withStream { stream =>
      val query = stream.start(stream.source.repartition(n, col("k")))
      Seq(moves(1), Table.empty(n)).foreach(refused(query, _, "NotYetError", "no exchange of it is routed"))
    }
  }

  private def statefulSteps: Seq[(String, DataFrame => DataFrame)] = {
    def timed(df: DataFrame) = df.withColumn("t", timestamp_seconds(col("k"))).withWatermark("t", "1 minute")
    val keep = (k: Long, rows: Iterator[Long], state: GroupState[Long]) => {
      state.update(state.getOption.getOrElse(0L) + rows.size)
      Iterator(k)
    }
    val longs = Encoders.scalaLong
    Seq(
      "Aggregate" -> (_.groupBy("k").count()),
      "Aggregate" -> (df => timed(df).groupBy(session_window(col("t"), "1 minute"), col("k")).count()),
      "Aggregate" -> (_.agg(count("*"))),
      "Deduplicate" -> (_.distinct()),
      "Deduplicate" -> (_.dropDuplicates("k")),
      "DeduplicateWithinWatermark" -> (df => timed(df).dropDuplicatesWithinWatermark("k")),
      "stream-stream join" -> (df => df.join(df.select(col("k").as("k2")), col("k") === col("k2"))),
      "GlobalLimit" -> (_.limit(5)),
      "FlatMapGroupsWithState" -> (_.as[Long](longs)
        .groupByKey((k: Long) => k)(longs)
        .flatMapGroupsWithState(OutputMode.Append(), GroupStateTimeout.NoTimeout())(keep)(longs, longs)
        .toDF("k"))
    )
  }

  for (((operator, step), i) <- statefulSteps.zipWithIndex)
    test(s"a stateful query is refused a table, and takes an empty one: $operator ($i)") {
      withStream { stream =>
        val df = step(Routing.repartition(stream.source, n, Seq(col("k")), None))
        val mode = if (operator == "Aggregate") "complete" else "append"
        val session = df.columns.contains("session_window")
        val query = df.writeStream
          .option("checkpointLocation", stream.dir.resolve("checkpoint").toString)
          .outputMode(if (session) "append" else mode)
          .format("noop")
          .start()
        refused(query, moves(1), "QueryError", s"its $operator keeps state by key")
        assert(Queries.publish(query, Table.empty(n), conf) == (1, 0))
      }
    }

  test(
    "a stateful query over an exchange with a table of its own equals plain Spark: its state stays where " +
      "hashing puts it"
  ) {
    withStream { stream =>
      def counts(name: String, df: DataFrame): StreamingQuery =
        df.groupBy("k").count().writeStream.outputMode("complete").format("memory").queryName(name).start()
      stream.add()
      val queries = Seq(
        counts("plain", stream.source),
        counts("moved", Routing.repartition(stream.source, 4, Seq(col("k")), Some(moves(1)))),
        counts(
          "split",
          Routing.repartition(
            stream.source,
            4,
            Seq(col("k")),
            Some(Table(n, hashes.values.map(_ -> Seq(0, 1, 3)).toMap))
          )
        )
      )
      queries.foreach(_.processAllAvailable())
      stream.add()
      queries.foreach(_.processAllAvailable())
      val Seq(plain, moved, split) =
        Seq("plain", "moved", "split").map(spark.table(_).orderBy("k").collect().toSeq): @unchecked
      assert(plain.size == hashes.size && plain.forall(_.getLong(1) == 2) && moved == plain && split == plain)
    }
  }

  test("a stream joined with a static side stays right when tables are swapped") {
    withStream { stream =>
      val static = spark.range(20).select(col("id").as("k"), (col("id") * 10).as("v"))
      def joined(df: DataFrame) = df.join(static.repartition(n, col("k")), "k").select("k")
      stream.add()
      val query = stream.start(joined(Routing.repartition(stream.source, n, Seq(col("k")), None)))
      query.processAllAvailable()
      Queries.publish(query, moves(1), conf)
      stream.add()
      query.processAllAvailable() // the sink asserts that no row is lost
      Queries.publish(query, Table(n, hashes.values.map(_ -> Seq(0, 1, 3)).toMap), conf)
      stream.add()
      query.processAllAvailable()
      assert(
        stream.placed.keySet.asScala == Set(0L, 1L, 2L) && stream.placed.values.asScala
          .forall(_.keySet == hashes.keySet)
      )
    }
  }
}
