package org.apache.spark.sql.skewless.state

import java.time.Duration

import io.skewless.table.Table
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.{
  Event,
  FullMatrix,
  Operator,
  Queries,
  SparkPrivate,
  Stateful,
  StatefulRun
}
import org.scalatest.funsuite.AnyFunSuite

/**
 * Swaps of every shape, and every way that Spark can keep a RocksDB store, on a few queries: the rows are
 * plain Spark's.
 */
class StateShapesSuite extends AnyFunSuite with StatefulRun {

  private val count = Operator.named("count")
  private val batches = input(6)
  private lazy val all = hashes(batches, "k")
  private lazy val expected = plain(count, batches)

  private def to(target: Int => Int, n: Int = n) =
    Table(n, all.map(h => h -> Seq(target(Math.floorMod(h, n)))).toMap)

  /** Publishes each table before its batch and compares every batch; the state rows that each swap moved. */
  private def moved(operator: Operator, tables: Map[Int, Table], before: Outcome): Map[Long, Long] =
    withRun(operator.query, operator.mode, ours) { run =>
      val query = run.start()
      batches.zipWithIndex.foreach { case (rows, i) =>
        tables.get(i).foreach(t => assert(Queries.publish(query, t, limits)._2 == i))
        run.stream.addData(rows)
        query.processAllAvailable()
      }
      same(run.outcome, before)
      SparkPrivate.drainListeners(spark.sparkContext)
      Queries.swaps(query).map(s => s.batch -> s.rows).toMap
    }

  private def moved(tables: (Int, Table)*): Map[Long, Long] = moved(count, tables.toMap, expected)

  test("a table that says what hashing says moves nothing") {
    assert(moved(2 -> to(identity), 3 -> Table.empty(n)).isEmpty)
  }

  test("everything moves, and moves back") {
    val rows = moved(2 -> to(p => (p + 1) % n), 4 -> Table.empty(n))
    assert(rows.keySet == Set(2L, 4L) && rows.values.forall(_ > 20), rows)
  }

  test("a cycle: two partitions exchange their keys") {
    assert(moved(3 -> to { case 0 => 1; case 1 => 0; case p => p }).keySet == Set(3L))
  }

  test("a chain: keys go on from partition to partition over three epochs, batch after batch") {
    assert(moved((1 to 4).map(i => i -> to(p => (p + i) % n)): _*).keySet == Set(1L, 2L, 3L, 4L))
  }

  test("many to one") {
    assert(moved(3 -> to(_ => 2)).keySet == Set(3L))
  }

  test("a key that has no state: nothing to carry, and its first row finds the new place") {
    val unseen = (1 to 1000).find(!all.contains(_)).get
    assert(moved(2 -> Table(n, Map(unseen -> Seq(Math.floorMod(unseen + 1, n)))))(2) == 0)
  }

  test("a swap before the first batch and before the second") {
    assert(moved(0 -> to(p => (p + 1) % n), 1 -> to(p => (p + 2) % n)).keySet == Set(1L))
  }

  test("a swap in a batch without rows: a watermark moves on") {
    val windows = Operator.named("windowed count, append")
    withConf(SQLConf.STREAMING_NO_DATA_MICRO_BATCHES_ENABLED.key -> "true") {
      val keys = hashes(batches, "k", "w")
      val reference = plain(windows.query, windows.mode, batches)
      withRun(windows.query, windows.mode, ours) { run =>
        // The batch without rows follows at once: publish while the batch before it runs.
        var publish: () => Unit = () => ()
        val query = run.start { (rows, id) => run.collect(rows, id); if (id == 2) publish() }
        publish = () => { Queries.publish(query, table(keys, 1), limits); () }
        batches.foreach { rows => run.stream.addData(rows); query.processAllAvailable() }
        SparkPrivate.drainListeners(spark.sparkContext)
        same(run.outcome, reference)
        assert(
          Queries.swaps(query).map(_.batch) == Seq(3L) && query.recentProgress.exists(p =>
            p.batchId == 3 && p.numInputRows == 0
          )
        )
      }
    }
  }

  test("a moved key's time to live ends in its new place: nothing of it is left, as in plain Spark") {
    val life = Duration.ofSeconds(2)
    def rowsHeld(provider: String, swap: Boolean): (Long, Long) =
      withRun(Stateful.expiring(_, life), "update", provider) { run =>
        val query = run.start()
        def held(rows: Seq[Event]) = {
          run.stream.addData(rows)
          query.processAllAvailable()
          query.lastProgress.stateOperators.head.numRowsTotal
        }
        val first = held(batches.head)
        if (swap) Queries.publish(query, to(p => (p + 1) % n), limits)
        held(batches(1).take(1))
        Thread.sleep(life.toMillis + 100)
        val last = held(Seq(Event("late", 0, 1, 1)))
        SparkPrivate.drainListeners(spark.sparkContext)
        assert(Queries.swaps(query).exists(_.rows > 20) == swap, "state did move")
        (first, last)
      }
    val expected = rowsHeld(stock, swap = false)
    assert(expected._2 < expected._1 / 4, "most of the state did expire")
    assert(rowsHeld(ours, swap = true) == expected)
  }

  for (partitions <- Seq(1, if (FullMatrix.on) 300 else 50))
    test(s"$partitions partitions") {
      withConf("spark.sql.shuffle.partitions" -> partitions.toString) {
        val short = batches.take(3)
        val reference = plain(count, short)
        withRun(count.query, count.mode, ours) { run =>
          val query = run.start()
          run.stream.addData(short.head)
          query.processAllAvailable()
          Queries.publish(query, to(p => (p + 7) % partitions, partitions), limits)
          short.tail.foreach { rows => run.stream.addData(rows); query.processAllAvailable() }
          same(run.outcome, reference)
          SparkPrivate.drainListeners(spark.sparkContext)
          assert(Queries.swaps(query).map(_.rows).sum > 0 == partitions > 1)
        }
      }
    }

  private val variables = Operator.named("transformWithState, value, list and map")
  private val rocksdb = "spark.sql.streaming.stateStore.rocksdb."

  for {
    (name, confs, operators) <- Seq(
      (
        "changelog checkpoints",
        Seq(rocksdb + "changelogCheckpointing.enabled" -> "true"),
        Seq(count, variables)
      ),
      (
        "changelog checkpoints, format 2",
        Seq(
          rocksdb + "changelogCheckpointing.enabled" -> "true",
          SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> "2"
        ),
        Seq(count, variables)
      ),
      (
        "stores unloaded after each commit",
        Seq(SQLConf.STATE_STORE_UNLOAD_ON_COMMIT.key -> "true"),
        Seq(count)
      ),
      ("Avro encoding", Seq(SQLConf.STREAMING_STATE_STORE_ENCODING_FORMAT.key -> "avro"), Seq(variables)),
      ("row checksums", Seq(SQLConf.STATE_STORE_ROW_CHECKSUM_ENABLED.key -> "true"), Seq(count, variables)),
      ("rows not counted", Seq(rocksdb + "trackTotalNumberOfRows" -> "false"), Seq(count))
    )
    operator <- operators
  } test(s"$name: ${operator.name}") {
    withConf(confs: _*) {
      val keys = hashes(batches, operator.keys: _*)
      val tables = Map(2 -> table(keys, 1), 3 -> table(keys, 2), 5 -> Table.empty(n))
      assert(moved(operator, tables, plain(operator, batches)).keySet == Set(2L, 3L, 5L))
    }
  }
}
