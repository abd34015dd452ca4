package org.apache.spark.sql.skewless.split

import java.nio.{ByteBuffer, ByteOrder}

import io.skewless.table.{Left, Right, Split, Table}
import org.apache.spark.sql.{DataFrame, Encoders, Row}
import org.apache.spark.sql.execution.streaming.runtime.MemoryStream
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.route.Routing
import org.apache.spark.sql.skewless.{Event, FullMatrix, JoinSplits, Operator, Queries, SparkPrivate}
import org.scalatest.funsuite.AnyFunSuite

/** A key of a join that is split over several partitions, more and fewer of them: the rows of plain Spark. */
class JoinSplitSuite extends AnyFunSuite with JoinSplits {
  import JoinSplitSuite.Case
  private val batches = joinInput(9)
  private lazy val others = hashes(batches, "k") - hotHash

  private def run(
      operator: Operator,
      tables: Map[Int, Table],
      batches: Seq[Seq[Event]] = batches
  ): Outcome =
    withRun(operator.query, operator.mode, ours) { run =>
      val query = run.start()
      batches.zipWithIndex.foreach { case (rows, i) =>
        tables.get(i).foreach(Queries.publish(query, _, limits))
        run.stream.addData(rows)
        query.processAllAvailable()
        val inForce = tables.filter(_._1 <= i).maxByOption(_._1)
        assert(spreads(query) == inForce.exists(_._2.hasSplits), s"batch $i is spread as its table says")
      }
      SparkPrivate.drainListeners(spark.sparkContext)
      val swaps = Queries.swaps(query)
      assert(swaps.map(_.batch) == tables.keys.toSeq.sorted.map(_.toLong) && swaps.forall(_.rows > 0))
      run.outcome
    }

  private val checksums = Seq("spark.sql.streaming.stateStore.rowChecksum.enabled" -> "true")
  private val changelog = Seq(
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled" -> "true"
  )

  private val covering = Seq(
    Case("inner", "left", 1, 1),
    Case("inner", "right", 3, 2),
    Case("inner", "grid", 2, 2),
    Case("left_outer", "left", 3, 2, checksums),
    Case("left_semi", "left", 2, 1),
    Case("right_outer", "right", 3, 1, changelog)
  )

  private val all = for {
    (kind, sides) <- Seq(
      "inner" -> Seq("left", "right", "grid"),
      "left_outer" -> Seq("left"),
      "left_semi" -> Seq("left"),
      "right_outer" -> Seq("right")
    )
    side <- sides
    joinFormat <- if (kind == "inner") Seq(1, 2, 3) else Seq(2, 3)
    format <- Seq(1, 2)
    more <- Seq(Nil, checksums, changelog)
  } yield Case(kind, side, joinFormat, format, more)

  for (one <- if (FullMatrix.on) all else covering)
    test(s"$one: a split starts, grows, shifts, shrinks and ends") {
      val operator = joinOf(
        one.kind,
        Seq(
          "spark.sql.streaming.join.stateFormatVersion" -> one.joinFormat.toString,
          "spark.sql.streaming.stateStore.checkpointFormatVersion" -> one.format.toString
        ) ++ one.more: _*
      )
      withConf(operator.conf: _*) {
        val tables = one.side match {
          case "left" => course(Left, others)
          case "right" => course(Right, others)
          case _ => grids(others)
        }
        same(run(operator, tables), plain(operator, batches))
      }
    }

  test("two keys that share a hash are merged each for itself") {
    val names = spark.range(300000).select(concat(lit("c-"), col("id")).as("k"))
    val pair = names
      .groupBy(Routing.keyHash(spark, Seq(col("k"))).as("hash"))
      .agg(collect_list("k").as("keys"))
      .where("size(keys) > 1")
      .orderBy("hash")
      .head()
    val (hash, keys) = (pair.getInt(0), pair.getSeq[String](1))
    val shared = batches.map(_.map(e => if (e.k == hot) e.copy(k = keys((e.v / 2 % 3 % 2).toInt)) else e))
    val operator = joinOf("left_outer", "spark.sql.streaming.join.stateFormatVersion" -> "2")
    withConf(operator.conf: _*)(
      same(run(operator, course(Left, others - hash, hash), shared), plain(operator, shared))
    )
  }

  test("the input decides: outer rows of the hot key stay alone and find partners, in most batches") {
    val operator = joinOf("left_outer")
    withConf(operator.conf: _*) {
      val rows = plain(operator, batches).rows.values.map(_.filter(_.startsWith("[hot")))
      assert(rows.count(_.exists(_.contains("null"))) >= 5 && rows.count(_.exists(!_.contains("null"))) >= 5)
    }
  }

  test("the input sees a wrong side: dealt out on the right, lonely left rows are given out too often") {
    val everything = spark.createDataset(batches.flatten).toDF().withColumn("t", timestamp_seconds(col("t")))
    def part(side: Int, i: Int) =
      everything.where(s"v % 2 <> $side OR k <> '$hot' OR v div 2 % 3 = $i OR k IS NULL")
    def rows(parts: Seq[DataFrame]) =
      parts.flatMap(join("left_outer")(_).where(s"k = '$hot'").collect()).map(_.toString).sorted
    val whole = rows(Seq(everything))
    assert(rows(Seq(0, 1, 2).map(part(0, _))) == whole)
    assert(rows(Seq(0, 1, 2).map(part(1, _))).size > whole.size + 20)
  }

  test("a loop sees which sides may be split, rows of the right side, and copies as real rows") {
    val operator = joinOf("left_outer")
    withConf(operator.conf: _*)(withRun(operator.query, operator.mode, ours) { run =>
      val query = run.start()
      Queries.watch(query)
      Seq(0, 1, 2).foreach { i =>
        if (i == 2) Queries.publish(query, splitting(Split.left(0, 1, 2)), limits)
        run.stream.addData(batches(i))
        query.processAllAvailable()
      }
      SparkPrivate.drainListeners(spark.sparkContext)
      val seen = Queries.listener(spark.sparkContext).observed(query.id.toString, after = 0)
      assert(seen.map(_.batchId) == Seq(1, 2) && seen.forall(_.sides == "left"))
      seen.foreach { batch =>
        val rows = batches(batch.batchId.toInt)
        val at = ints(batch.keyHashes).indexOf(hotHash)
        val (all, right) = (rows.count(_.k == hot), rows.count(e => e.k == hot && e.v % 2 == 1))
        assert((longs(batch.keyRows)(at), longs(batch.rightRows)(at)) == (all, right))
        val copies = if (batch.batchId == 2) 2 * right else 0
        assert(longs(batch.rows).sum == longs(batch.keyRows).sum + copies)
      }
    })
  }

  private def longs(bytes: Array[Byte]): Seq[Long] = {
    val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer()
    Seq.fill(buffer.remaining)(buffer.get())
  }

  private def ints(bytes: Array[Byte]): Seq[Int] = {
    val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer()
    Seq.fill(buffer.remaining)(buffer.get())
  }

  private def refused(
      query: DataFrame => DataFrame,
      split: Split,
      says: String,
      mode: String = "append"
  ): Unit =
    withConf("spark.sql.shuffle.partitions" -> n.toString) {
      withRun(query, mode, ours) { run =>
        val running = run.start()
        batches.take(1).foreach { rows => run.stream.addData(rows); running.processAllAvailable() }
        val message = refusal("QueryError")(Queries.publish(running, splitting(split), limits)).getMessage
        assert(message.contains(says), message)
        run.stream.addData(batches(1))
        running.processAllAvailable()
        assert(!spreads(running) && Queries.latest(running).isEmpty, "the old table is in force")
      }
    }

  private val (left, right, grid) = (Split.left(0, 1), Split.right(0, 1), Split(Seq(0, 1, 2, 3), 2))

  test("a side that the join must see whole is not split") {
    refused(join("left_outer"), right, "on the right side")
    refused(join("left_outer"), grid, "on the left and the right side")
    refused(join("left_semi"), right, "on the right side")
    refused(join("right_outer"), left, "on the left side")
    Seq(left, right, grid).foreach(refused(join("full_outer"), _, "full outer join"))
  }

  test("a stage that needs a key in one place above its join is not split") {
    val timed = join("inner")(_: DataFrame).drop("rt")
    refused(timed(_).dropDuplicatesWithinWatermark("k"), left, "and a split serves a join alone")
    refused(join("inner")(_).repartition(n, col("k")), left, "above the join needs all rows of a key")
    val static = (df: DataFrame) =>
      df.sparkSession.range(40).select(concat(lit("key-"), col("id")).as("k"), (col("id") * 3).as("x"))
    refused(df => join("inner")(df).join(static(df), "k"), left, "another join reads the same keys")
    refused(
      df => timed(df).groupBy(col("lg"), window(col("lt"), "20 seconds")).count(),
      left,
      "keeps one state per key"
    )
  }

  test("operators that keep one state per key are not split") {
    Seq("count", "dropDuplicates", "session window", "transformWithState, timers").foreach { name =>
      val operator = Operator.named(name)
      refused(operator.query, left, "keeps one state per key", operator.mode)
    }
  }

  test("rows that two attempts may see differently are split in checkpoint format 2 only") {
    val mapped = (df: DataFrame) =>
      join("inner")(df.mapPartitions((rows: Iterator[Row]) => rows)(Encoders.row(df.schema)))
    val format = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    withConf(format -> "1")(refused(mapped, left, s"$format=2"))
    withConf(format -> "2", "spark.sql.shuffle.partitions" -> n.toString) {
      withRun(mapped, "append", ours) { run =>
        val query = run.start()
        run.stream.addData(batches.head)
        query.processAllAvailable()
        Queries.publish(query, splitting(left), limits)
        run.stream.addData(batches(1))
        query.processAllAvailable()
        assert(spreads(query))
      }
    }
  }

  test("a batch without rows of a side says nothing of it: its steps are not in the plan") {
    val other = MemoryStream[Event](events, spark)
    val marked = (df: DataFrame) => {
      val left = df.withColumn("k", when(expr("uuid() <> ''"), col("k"))).withWatermark("t", "20 seconds")
      val right = other.toDF().withColumn("t", timestamp_seconds(col("t"))).withWatermark("t", "20 seconds")
      left
        .select(col("k"), col("t"))
        .join(
          right.select(col("k").as("rk"), col("t").as("rt")),
          expr("k = rk AND rt BETWEEN t AND t + INTERVAL 25 seconds")
        )
    }
    withConf(
      "spark.sql.streaming.stateStore.checkpointFormatVersion" -> "1",
      "spark.sql.shuffle.partitions" -> n.toString
    ) {
      withRun(marked, "append", ours) { run =>
        val query = run.start()
        def refusedAfter(stream: MemoryStream[Event], code: String): Unit = {
          stream.addData(batches.head)
          query.processAllAvailable()
          refusal(code)(Queries.publish(query, splitting(left), limits))
          ()
        }
        refusedAfter(other, "NotYetError")
        refusedAfter(run.stream, "QueryError")
        refusedAfter(other, "QueryError") // what was seen is remembered
        assert(!spreads(query) && Queries.latest(query).isEmpty)
      }
    }
  }

  test("before the first batch of a run a split is asked for again") {
    withConf("spark.sql.shuffle.partitions" -> n.toString) {
      withRun(join("inner"), "append", ours) { run =>
        val query = run.start()
        refusal("NotYetError")(Queries.publish(query, splitting(left), limits))
      }
    }
  }

  test("what foreachBatch groups by the key is grouped anew") {
    val counted = (query: DataFrame => DataFrame, provider: String, tables: Map[Int, Table]) =>
      withRun(query, "append", provider) { run =>
        val running = run.start((rows, id) => run.collect(rows.groupBy("k").count(), id))
        batches.zipWithIndex.foreach { case (rows, i) =>
          tables.get(i).foreach(Queries.publish(running, _, limits))
          run.stream.addData(rows)
          running.processAllAvailable()
        }
        run.outcome
      }
    withConf("spark.sql.shuffle.partitions" -> n.toString) {
      same(
        counted(join("inner"), ours, Map(1 -> splitting(Split.left(0, 3, 5)))),
        counted(join("inner"), stock, Map.empty)
      )
    }
  }
}

object JoinSplitSuite {
  private final case class Case(
      kind: String,
      side: String,
      joinFormat: Int,
      format: Int,
      more: Seq[(String, String)] = Nil
  )
}
