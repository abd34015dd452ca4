package org.apache.spark.sql.skewless.query

import java.nio.{ByteBuffer, ByteOrder}

import scala.util.Random

import io.skewless.observe.{HotKeys, KeyCount, KeySampler, ObservedBatch}
import io.skewless.table.Table
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.{Event, Operator, Queries, SparkPrivate, StatefulRun}
import org.apache.spark.sql.skewless.route.Routing
import org.scalatest.funsuite.AnyFunSuite

/** What the loop sees: rows by key hash and loads by partition, of every committed batch, counted once. */
class ObserveSuite extends AnyFunSuite with StatefulRun {

  private def longs(bytes: Array[Byte]) = {
    val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer()
    Seq.fill(buffer.remaining)(buffer.get())
  }

  private def ints(bytes: Array[Byte]) = {
    val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer()
    Seq.fill(buffer.remaining)(buffer.get())
  }

  private def observed(id: String, after: Long = -1): Seq[ObservedBatch] = {
    SparkPrivate.drainListeners(spark.sparkContext)
    Queries.listener(spark.sparkContext).observed(id, after)
  }

  /** Rows by hash of one batch, counted by Spark. */
  private def counted(rows: Seq[Event]): Map[Int, Long] = spark
    .createDataset(rows)
    .select(Routing.keyHash(spark, Seq(col("k"))).as("h"))
    .groupBy("h")
    .count()
    .collect()
    .map(row => row.getInt(0) -> row.getLong(1))
    .toMap

  for (actions <- Seq(1, 2))
    test(
      s"a stateful query is observed batch by batch, before and after a swap; $actions action(s) a batch"
    ) {
      val batches = input(4)
      val states = Operator.named("flatMapGroupsWithState") // all rows cross its exchange
      withRun(states.query, states.mode, ours) { run =>
        val query = run.start { (rows, id) =>
          (1 until actions).foreach(_ => rows.count()); run.collect(rows, id)
        }
        Queries.watch(query)
        val named = batches.map(_.map(e => if (e.k == null) e.copy(k = "none") else e))
        batches.zipWithIndex.foreach { case (rows, i) =>
          if (i == 2) Queries.publish(query, table(hashes(named, "k"), 1), limits)
          run.stream.addData(rows)
          query.processAllAvailable()
        }
        val seen = observed(query.id.toString)
        assert(seen.map(_.batchId) == Seq(0, 1, 2, 3) && seen.map(_.epoch) == Seq(0, 0, 1, 1))
        seen.zip(named).foreach { case (batch, rows) =>
          val expected = counted(rows)
          assert(
            ints(batch.keyHashes).zip(longs(batch.keyRows)).toMap == expected,
            "few keys are counted exactly"
          )
          val routes = if (batch.epoch == 0) Table.empty(n) else table(hashes(named, "k"), 1)
          val loads = expected.groupMapReduce { case (hash, _) => routes.route(hash) }(_._2)(_ + _)
          assert(longs(batch.rows) == (0 until n).map(p => loads.getOrElse(p, 0L)))
          assert(batch.maxError == 0 && batch.batchMs > 0 && longs(batch.runMs).forall(_ >= 0))
        }
        assert(observed(query.id.toString, after = 2).map(_.batchId) == Seq(3))
      }
    }

  /**
   * The measured bytes of the keys that a swap moves, over those that the swap then found; every key is
   * written in every batch.
   */
  private def measuredShare(operator: Operator): Double = {
    val rows = input(1).head.filter(_.k != null).distinctBy(_.k)
    withRun(operator.query, operator.mode, ours) { run =>
      val query = run.start()
      Queries.watch(query)
      (0 until 5).foreach { i =>
        run.stream.addData(rows.map(e => e.copy(v = e.v + i))); query.processAllAvailable()
      }
      val moving = table(hashes(Seq(rows), operator.keys: _*), 1)
      val state = observed(query.id.toString).last
      val known = ints(state.stateHashes).zip(longs(state.stateBytes)).toMap
      val expected = known.collect {
        case (hash, bytes) if moving.route(hash) != Math.floorMod(hash, n) => bytes
      }.sum
      assert(longs(state.partitionStateBytes).forall(_ > 0))
      Queries.publish(query, moving, limits)
      run.stream.addData(rows)
      query.processAllAvailable()
      SparkPrivate.drainListeners(spark.sparkContext)
      expected.toDouble / Queries.swaps(query).head.stateBytes
    }
  }

  for (name <- Seq("count", "count, no codegen", "flatMapGroupsWithState"))
    test(s"state bytes by key are measured to the byte: $name")(
      assert(measuredShare(Operator.named(name)) == 1.0)
    )

  for (name <- Seq("transformWithState, value, list and map", "stream-stream join, inner"))
    test(s"of state that grows, what the last batches wrote is known: $name") {
      val share = measuredShare(Operator.named(name))
      assert(share > 0.5 && share < 1.5)
    }

  test("a query that nobody watches counts no keys, and keeps Spark's own partitioning") {
    val count = Operator.named("count")
    withRun(count.query, count.mode, ours) { run =>
      val query = run.start()
      run.stream.addData(input(1).head)
      query.processAllAvailable()
      assert(observed(query.id.toString).forall(_.keyHashes.isEmpty))
    }
  }

  test("a routed exchange without state is observed too") {
    withRun(Routing.repartition(_, n, Seq(col("k")), None), "append", ours) { run =>
      val query = run.start()
      Queries.watch(query)
      val rows = input(1).head
      run.stream.addData(rows)
      query.processAllAvailable()
      val Seq(batch) = observed(query.id.toString): @unchecked
      assert(ints(batch.keyHashes).zip(longs(batch.keyRows)).toMap == counted(rows))
      assert(longs(batch.rows).sum == rows.size)
    }
  }

  test("many keys, many rows: hot keys are found, each within the sketch's bound and the sampling's noise") {
    val random = new Random(5)
    val weights = Array.tabulate(20000)(i => 1.0 / (i + 1)) // Zipf, z = 1
    val bounds = weights.scanLeft(0.0)(_ + _).tail
    def key() = java.util.Arrays.binarySearch(bounds, random.nextDouble() * bounds.last) match {
      case i if i >= 0 => i; case i => -i - 1
    }
    val truth = new Array[Long](weights.length)
    val parts = (0 until 4).map { task =>
      val sampler = new KeySampler(2048, task.toLong)
      (0 until 200000).foreach { _ =>
        val k = key(); truth(k) += 1; sampler.see(k)
      }
      KeyCount(task, sampler.bytes)
    }
    val found = HotKeys.merge(parts, 2048)
    val estimates = found.hashes.zip(found.rows).toMap
    assert(found.maxError <= 3.5 / 2048 * 800000)
    (0 until 100).foreach { k =>
      val noise = 6 * Math.sqrt(truth(k).toDouble * KeySampler.Stride)
      assert(
        Math.abs(estimates.getOrElse(k, 0L) - truth(k)) <= found.maxError + noise,
        s"key $k: ${estimates.get(k)}, really ${truth(k)}"
      )
    }
  }
}
