package io.skewless.observe

import java.nio.file.Files
import java.util.UUID
import java.util.concurrent.atomic.AtomicInteger

import io.skewless.TestSpark
import io.skewless.table.Table
import org.apache.spark.TaskContext
import org.apache.spark.sql.{DataFrame, Dataset, Encoders, Row}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.{Queries, SparkPrivate}
import org.apache.spark.sql.skewless.route.Routing
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent
import org.scalatest.funsuite.AnyFunSuite

/**
 * The load of each partition ties to the rows that are really in it, whatever Spark did to get them there.
 */
class BatchListenerSuite extends AnyFunSuite with TestSpark {

  import BatchListenerSuite.Nobody
  private val n = 5

  /** Fifty keys, the first of which has half of the rows. */
  private lazy val data: DataFrame =
    spark
      .range(0, 2000, 1, 3)
      .select(when(col("id") % 2 === 0, lit(0L)).otherwise(col("id") % 50).as("k"), col("id"))

  private lazy val table: Table = {
    val hash = spark.range(1).select(Routing.keyHash(spark, Seq(col("id")))).head().getInt(0)
    Table(n, Map(hash -> Seq(4)), epoch = 3)
  }

  private def routed(df: DataFrame = data): DataFrame = Routing.repartition(df, n, Seq(col("k")), Some(table))

  private lazy val trueRows: Seq[Long] = {
    val counts = routed()
      .groupBy(spark_partition_id())
      .count()
      .collect()
      .map(row => row.getInt(0) -> row.getLong(1))
      .toMap
    (0 until n).map(counts.getOrElse(_, 0L))
  }

  private def listener: BatchListener = Queries.listener(spark.sparkContext)

  /** The loads of the exchanges that the body reads. */
  private def loadsOf(body: => Any): Seq[BatchLoads] = {
    SparkPrivate.drainListeners(spark.sparkContext)
    val before = listener.loads("").toSet
    body
    SparkPrivate.drainListeners(spark.sparkContext)
    listener.loads("").filterNot(before.contains)
  }

  private def checkTrue(loads: BatchLoads): Unit = {
    assert(loads.rows.toSeq == trueRows && trueRows.sum == 2000 && trueRows(4) >= 1000)
    assert(loads.bytes.zip(loads.rows).forall { case (bytes, rows) => (bytes > 0) == (rows > 0) })
    assert(loads.bytes(4) == loads.bytes.max && loads.runMs.forall(_ >= 0))
    assert(loads.queryId == "" && loads.batchId == -1 && loads.epoch == 3 && loads.partitions == n)
  }

  for (adaptive <- Seq(true, false)) {
    def check(name: String)(body: => Unit): Unit =
      test(s"$name (adaptive: $adaptive)")(withConf("spark.sql.adaptive.enabled" -> adaptive.toString)(body))

    check("rows, bytes and run time tie to the partitions' true counts") {
      val loads = loadsOf(routed().collect())
      assert(loads.size == 1)
      checkTrue(loads.head)
    }

    check("two actions on one DataFrame count once") {
      val df = routed()
      val loads = loadsOf { df.collect(); df.collect(); df.rdd.count() }
      loads.foreach(checkTrue)
      assert(loads.nonEmpty)
    }

    check("a failed and retried task counts once") {
      val failures = BatchListenerSuite.failures
      failures.set(0)
      val fails = udf { (id: Long) =>
        if (TaskContext.get().partitionId() == 4 && TaskContext.get().attemptNumber() == 0 && id > 1900) {
          BatchListenerSuite.failures.incrementAndGet()
          throw new IllegalStateException("injected")
        }
        id
      }
      val loads = loadsOf(routed().select(fails(col("id"))).collect())
      assert(failures.get() == 1, "the fault did not fire")
      assert(loads.size == 1)
      checkTrue(loads.head)
    }

    check("under a union each routed exchange has its own loads, and a plain one none") {
      val plain = data.repartition(7, col("id"))
      val loads = loadsOf(plain.union(routed()).union(plain).collect())
      assert(loads.size == 1)
      checkTrue(loads.head)
      val twice = loadsOf(routed().union(routed(data.filter(col("id") >= 0))).collect())
      assert(twice.size == 2)
      twice.foreach(checkTrue)
    }

    check("a join counts the rows of its routed side, not those of the other") {
      val other =
        spark.range(0, 50, 1, 2).select(col("id").as("k"), col("id").as("v")).repartition(n, col("k"))
      val loads = loadsOf(routed().join(other, "k").collect())
      assert(loads.size == 1)
      checkTrue(loads.head)
    }

    check("a join of two routed sides counts each side's own rows") {
      val loads =
        loadsOf(routed().join(routed(data.filter(col("id") < 0).withColumnRenamed("id", "v")), "k").collect())
      assert(loads.map(_.rows.sum).toSet == Set(2000L, 0L))
      checkTrue(loads.find(_.rows.sum > 0).get)
    }

    check("above a coalesce no row is counted twice") {
      val loads = loadsOf(routed().coalesce(2).collect())
      assert(loads.size == 1 && loads.head.runMs.forall(_ >= 0))
      assert(loads.head.rows.sum <= 2000 && loads.head.rows.sum > 2000 - n)
    }
  }

  test("a partition that has not been read has no run time") {
    val loads = loadsOf(routed().limit(1).collect())
    assert(loads.nonEmpty && loads.forall(_.runMs.contains(-1L)))
  }

  test("a stream's loads carry its query, batch and epoch, and two actions in foreachBatch count once") {
    val dir = Files.createTempDirectory("skewless-loads")
    try {
      data.write.json(dir.resolve("in").toString)
      val twoActions = (batch: Dataset[Row], _: Long) => { batch.count(); batch.collect(); () }
      val source = spark.readStream.schema("k LONG, id LONG").json(dir.resolve("in").toString)
      val query =
        routed(source).writeStream
          .option("checkpointLocation", dir.resolve("c").toString)
          .foreachBatch(twoActions)
          .start()
      try query.processAllAvailable()
      finally query.stop()
      SparkPrivate.drainListeners(spark.sparkContext)
      val loads = listener.loads(query.id.toString)
      assert(
        loads.size == 1 && loads.head.batchId == 0 && loads.head.epoch == 3 &&
          loads.head.rows.toSeq == trueRows
      )
    } finally SparkPrivate.deleteRecursively(dir.toFile)
  }

  test("only the newest exchanges of a query are kept, and other queries keep theirs") {
    val small = new BatchListener(retainedBatches = 2, tracked = 64, Nobody)
    (1 to 5).foreach(i =>
      small.expectReads(i.toLong, new BatchLoads("a", i.toLong, 0, n), ReadCounters(-1, Nil))
    )
    small.expectReads(9L, new BatchLoads("b", 0, 0, n), ReadCounters(-1, Nil))
    assert(
      small.loads("a").map(_.batchId) == Seq(4, 5) && small.loads("b").map(_.batchId) == Seq(0) && small
        .loads("c")
        .isEmpty
    )
  }

  test("queries that ended long ago are forgotten, those that run or have just ended are not") {
    val listener = new BatchListener(retainedBatches = 2, tracked = 64, Nobody)
    val ids = Seq.fill(BatchListener.EndedQueries + 3)(UUID.randomUUID())
    def ends(id: UUID): Unit = listener.onOtherEvent(new QueryTerminatedEvent(id, UUID.randomUUID(), None))
    def runs(id: UUID, at: Long): Unit =
      listener.expectReads(at, new BatchLoads(id.toString, at, 0, n), ReadCounters(-1, Nil))
    ids.zipWithIndex.foreach { case (id, i) => runs(id, i.toLong) }
    ids.foreach(ends)
    assert(
      ids.map(id => listener.loads(id.toString).size) == Seq(0, 0, 0) ++ Seq.fill(BatchListener.EndedQueries)(
        1
      )
    )
    runs(ids(3), 100) // started again
    (1 to BatchListener.EndedQueries).foreach(_ => ends(UUID.randomUUID()))
    assert(
      ids.map(id => listener.loads(id.toString).size).sum == 2 && listener.loads(ids(3).toString).size == 2
    )
  }

  test("rows are counted without user code: typed maps above the exchange change nothing") {
    val loads =
      loadsOf(routed().map(row => row.getLong(0))(Encoders.scalaLong).filter((k: Long) => k > 10).collect())
    assert(loads.size == 1)
    checkTrue(loads.head)
  }
}

object BatchListenerSuite {
  private object Nobody extends RunEvents {
    override def committed(run: UUID, batchId: Long, batchMs: Long): Unit = ()
    override def ended(run: UUID): Unit = ()
  }
  val failures = new AtomicInteger
}
