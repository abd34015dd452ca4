package org.apache.spark.sql.skewless

import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap

import scala.collection.concurrent.TrieMap
import scala.jdk.CollectionConverters._
import scala.util.Random

import io.skewless.{SkewlessConf, TestSpark}
import io.skewless.table.Table
import org.apache.spark.SparkConf
import org.apache.spark.sql.{DataFrame, Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.execution.streaming.runtime.MemoryStream
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
import org.apache.spark.sql.functions._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.route.Routing
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.Assertions

/** A row of the test streams: a key that may be null, a second key, a value, and an event time in seconds. */
final case class Event(k: String, g: Int, v: Long, t: Long)

/**
 * Rows of each batch: about 40 keys, a few hot, one null, times that advance so that windows close and state
 * expires.
 */
final class StatefulInput(seed: Int = 7) {
  def batches(count: Int): Seq[Seq[Event]] = {
    val random = new Random(seed)
    Seq.tabulate(count) { batch =>
      Seq.tabulate(60) { i =>
        val key =
          if (random.nextInt(20) == 0) null else s"key-${Math.min(random.nextInt(40), random.nextInt(40))}"
        Event(key, random.nextInt(12), batch * 1000L + i, batch * 30L + random.nextInt(40))
      }
    }
  }
}

/** Whether every fault is tried with every operator (`make faults`) or each once (`make test`). */
object FullMatrix {
  val on: Boolean = System.getProperty("skewless.matrix") == "full"
}

/**
 * The same input through the same query, plain and with tables swapped between batches: what every operator
 * is tried with. Plain is Spark's own RocksDB provider and no table; the sink notes the rows of each batch.
 */
trait StatefulRun extends TestSpark { this: Assertions =>

  protected val n = 4
  protected val limits: SkewlessConf = SkewlessConf(new SparkConf(false))
  protected implicit val events: Encoder[Event] = Encoders.product[Event]

  protected def input(batches: Int, seed: Int = 7): Seq[Seq[Event]] = new StatefulInput(seed).batches(batches)

  /** Moves a third of all hashes that the keys of a query can have; `by` varies which and where. */
  protected def table(hashes: Iterable[Int], by: Int, n: Int = n): Table =
    Table(
      n,
      hashes
        .filter(h => by > 0 && Math.floorMod(h / 7, 3) != by % 3)
        .map(h => h -> Seq(Math.floorMod(h + by, n)))
        .toMap
    )

  /**
   * What one run saw: rows of each batch as text, sorted; and the checkpoint, for whoever wants to look
   * inside.
   */
  protected final class Outcome(val rows: Map[Long, Seq[String]])

  protected final class Run(val dir: Path, query: DataFrame => DataFrame, mode: String) {
    val seen = new ConcurrentHashMap[Long, Seq[String]]()
    val stream: MemoryStream[Event] = MemoryStream[Event](events, spark)
    val checkpoint: String = dir.resolve("checkpoint").toString

    def source: DataFrame = stream.toDF().withColumn("t", timestamp_seconds(col("t")))

    def start(note: (Dataset[Row], Long) => Unit = collect): StreamingQuery =
      query(source).writeStream
        .option("checkpointLocation", checkpoint)
        .outputMode(mode)
        .foreachBatch(note)
        .start()

    def collect(batch: Dataset[Row], id: Long): Unit = {
      seen.put(id, batch.collect().map(_.toString).sorted.toSeq); ()
    }

    /** What is left of state on its way to another partition. */
    def scratch: Seq[Path] = {
      val moves = dir.resolve("checkpoint/_skewless/moves")
      if (Files.exists(moves)) Files.list(moves).iterator.asScala.toSeq else Nil
    }

    def outcome: Outcome = new Outcome(seen.asScala.toMap)
  }

  protected def withRun[T](
      query: DataFrame => DataFrame,
      mode: String,
      provider: String
  )(body: Run => T): T = {
    val dir = Files.createTempDirectory("skewless-state")
    try withConf(SQLConf.STATE_STORE_PROVIDER_CLASS.key -> provider)(body(new Run(dir, query, mode)))
    finally {
      spark.streams.active.foreach(_.stop())
      org.apache.spark.util.Utils.deleteRecursively(dir.toFile)
    }
  }

  protected val ours: String = classOf[SkewlessStateStoreProvider].getName
  protected val stock: String = classOf[RocksDBStateStoreProvider].getName

  protected def plain(query: DataFrame => DataFrame, mode: String, batches: Seq[Seq[Event]]): Outcome =
    withRun(query, mode, stock) { run =>
      val running = run.start()
      batches.foreach { rows => run.stream.addData(rows); running.processAllAvailable() }
      run.outcome
    }

  /**
   * The same for an operator of the list, run once for all tests that ask: for more batches than they need,
   * since what plain Spark gives for a batch does not depend on later ones, nor on how the checkpoint is
   * kept.
   */
  protected def plain(operator: Operator, batches: Seq[Seq[Event]]): Outcome = {
    val most = input(StatefulRun.MostBatches)
    val whole = if (most.startsWith(batches)) most else batches
    val rows = StatefulRun.outcomes.getOrElseUpdate(
      (operator.name, whole),
      withConf(operator.conf: _*)(plain(operator.query, operator.mode, whole).rows)
    )
    assert(rows.keySet == whole.indices.map(_.toLong).toSet, "a batch for each part of the input")
    new Outcome(rows.filter(_._1 < batches.size))
  }

  /** The hashes of the keys in the input, for exchanges on the given columns. */
  protected def hashes(batches: Seq[Seq[Event]], keys: String*): Set[Int] =
    spark
      .createDataset(batches.flatten)
      .withColumn("t", timestamp_seconds(col("t")))
      .withColumn("w", window(col("t"), "20 seconds"))
      .select(Routing.keyHash(spark, keys.map(col)))
      .collect()
      .map(_.getInt(0))
      .toSet

  protected def same(swapped: Outcome, plain: Outcome): Unit = {
    (swapped.rows.keySet ++ plain.rows.keySet).toSeq.sorted.foreach { batch =>
      assert(swapped.rows.get(batch) == plain.rows.get(batch), s"batch $batch")
    }
    assert(plain.rows.values.exists(_.nonEmpty), "the query gave rows at all")
  }
}

private object StatefulRun {
  val MostBatches = 9

  /** Rows of each batch by operator and input. */
  val outcomes = TrieMap.empty[(String, Seq[Seq[Event]]), Map[Long, Seq[String]]]
}
