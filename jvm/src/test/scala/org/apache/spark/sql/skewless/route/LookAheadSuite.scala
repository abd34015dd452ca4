package org.apache.spark.sql.skewless.route

import java.nio.{ByteBuffer, ByteOrder}
import java.util.concurrent.{CountDownLatch, TimeUnit}

import scala.collection.concurrent.TrieMap

import io.skewless.observe.{LookAheadPace, ObservedBatch, PlanWait, Watching}
import io.skewless.table.Table
import org.apache.spark.TaskContext
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.{Event, FullMatrix, Operator, Queries, SparkPrivate, StatefulRun}
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.funsuite.AnyFunSuite

/** A batch whose keys are counted before it is planned, and which is routed by a table made from them. */
class LookAheadSuite extends AnyFunSuite with StatefulRun {
  import LookAheadSuite._

  private val batches = input(5)
  private val forEver = 3600 * 1000L
  private def listener = Queries.listener(spark.sparkContext)

  private def keyRows(batch: ObservedBatch): Map[Int, Long] = {
    val hashes = ByteBuffer.wrap(batch.keyHashes).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer()
    val rows = ByteBuffer.wrap(batch.keyRows).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer()
    Seq.fill(hashes.remaining)(hashes.get() -> rows.get()).toMap
  }

  /** Stands for the loop: publishes a table for every batch that it is shown, and lets its planner go. */
  private final class Loop(query: StreamingQuery, tableFor: Long => Table) extends AutoCloseable {
    val shown = TrieMap
      .empty[Long, (Map[Int, Long], Long)] // batch -> its keys, and the batch that the table was pinned to
    @volatile private var over = false
    private val id = query.id.toString
    private val thread = new Thread(() =>
      while (!over) {
        listener.upcoming(id).filterNot(batch => shown.contains(batch.batchId)).foreach { batch =>
          val (_, first) = Queries.publish(query, tableFor(batch.batchId), limits)
          shown(batch.batchId) = (keyRows(batch), first)
          Queries.decided(query, batch.batchId)
        }
        Queries.decided(query, listener.newestCommitted(id))
        Thread.sleep(5)
      }
    )
    Queries.watch(query, Watching(forEver, lookAhead = true, lookShare = Double.MaxValue))
    thread.start()

    override def close(): Unit = { over = true; thread.join(); Queries.unwatch(query) }
  }

  private def withLoop(query: StreamingQuery, keys: Seq[String])(body: Loop => Unit): Loop = {
    val moved = hashes(batches, keys: _*)
    val loop = new Loop(query, batch => table(moved, 1 + batch.toInt % 2))
    try { body(loop); loop }
    finally loop.close()
  }

  private def feed(run: Run, query: StreamingQuery, rows: Seq[Seq[Event]]): Unit =
    rows.foreach { part => run.stream.addData(part); query.processAllAvailable() }

  private def observed(query: StreamingQuery): Seq[ObservedBatch] = {
    SparkPrivate.drainListeners(spark.sparkContext)
    listener.observed(query.id.toString, -1)
  }

  private val seesNothing = Set(
    "two aggregates with different keys"
  ) // its second exchange reads what the first step keeps
  private val always = seesNothing ++ Set(
    "count",
    "transformWithState, timers",
    "stream-stream join, left outer"
  )

  for (operator <- Operator.all if FullMatrix.on || always(operator.name))
    test(
      s"every batch is routed by a table made from its own keys, rows are plain Spark's: ${operator.name}"
    ) {
      val expected = plain(operator, batches)
      withConf(operator.conf: _*) {
        withRun(operator.query, operator.mode, ours) { run =>
          val query = run.start()
          withLoop(query, operator.keys) { loop =>
            feed(run, query, batches)
            same(run.outcome, expected)
            val later = observed(query).filter(_.batchId > 0)
            if (seesNothing(operator.name)) assert(loop.shown.isEmpty)
            else {
              assert(
                later.nonEmpty && later.forall(batch => loop.shown(batch.batchId)._1 == keyRows(batch)),
                "what was to come came"
              )
              assert(
                loop.shown.forall { case (batch, (_, first)) => batch == first },
                "the table is for the batch that was shown"
              )
              assert(Queries.swaps(query).nonEmpty)
            }
            val read = query.recentProgress.map(_.numInputRows).filter(_ > 0).distinct.toSeq
            assert(
              read == Seq(batches.head.size * sides(operator)),
              "the rows of a look ahead are not counted as input"
            )
          }
        }
      }
    }

  /** How often the query reads its source by itself. */
  private def sides(operator: Operator): Int =
    if (operator.name.startsWith("stream-stream join") || operator.name.startsWith("union")) 2 else 1

  private def shownOf(query: DataFrame => DataFrame): Int = {
    val expected = plain(query, "update", batches)
    withRun(query, "update", ours) { run =>
      val running = run.start()
      val loop = withLoop(running, Seq("k")) { _ =>
        feed(run, running, batches)
        same(run.outcome, expected)
      }
      loop.shown.size
    }
  }

  test("a look ahead runs with the settings of the session") {
    val doubled =
      (df: DataFrame) => df.withColumn("m", map_from_arrays(array(lit(1), lit(1)), array(col("v"), col("v"))))
    withConf("spark.sql.mapKeyDedupPolicy" -> "LAST_WIN") {
      assert(shownOf(df => doubled(df).groupBy("k").agg(sum(element_at(col("m"), 1)))) == batches.size - 1)
    }
  }

  test("a step with a subquery on the way to the shuffle is not run twice") {
    assert(shownOf(_.where("v >= (SELECT min(id) FROM range(3))").groupBy("k").count()) == 0)
  }

  test("a look ahead that fails leaves the query alone, and is not tried for ever") {
    failed.clear()
    val fails = udf { (v: Long) =>
      if (looksAhead) {
        failed.put(TaskContext.get().stageId(), ()); throw new IllegalStateException("injected")
      }
      v
    }
    val query = (df: DataFrame) => df.withColumn("v", fails(col("v"))).groupBy("k").agg(sum("v"))
    val many = input(9)
    val expected = plain(query, "update", many)
    withRun(query, "update", ours) { run =>
      val running = run.start()
      withLoop(running, Seq("k")) { loop =>
        feed(run, running, many)
        same(run.outcome, expected)
        assert(loop.shown.isEmpty)
        assert(failed.size == PlanWait.Patience, "a stage a look")
      }
    }
  }

  test("a query that is stopped while it looks ahead starts again where it was") {
    val query = (df: DataFrame) => df.withColumn("v", holding(col("v"))).groupBy("k").agg(sum("v"))
    val expected = plain(query, "update", batches)
    withRun(query, "update", ours) { run =>
      val first = run.start()
      withLoop(first, Seq("k")) { _ =>
        feed(run, first, batches.take(1))
        reached = new CountDownLatch(1)
        hold = true
        run.stream.addData(batches(1))
        assert(reached.await(2, TimeUnit.MINUTES), "a look ahead is under way")
        first.stop()
        hold = false
      }
      val again = run.start()
      withLoop(again, Seq("k")) { _ =>
        again.processAllAvailable()
        feed(run, again, batches.drop(2))
        same(run.outcome, expected)
      }
    }
  }

  test("looking ahead rests while it takes more than its share of a batch, fails, or leads to nothing") {
    val looking = new LookAheadPace(0.125)
    def due = (1L to 20L).filter(looking.due)
    val (every, some, one) = (1L to 20L, Seq(5L, 10L, 15L, 20L), Seq(20L))
    assert(due == every)
    looking.batchMs = 1000
    looking.timed { Thread.sleep(200); true }
    assert(due == every, "the first may take longer")
    looking.timed { Thread.sleep(200); true }
    assert(due == one)
    looking.batchMs = 100000
    assert(due == every)
    (1 to PlanWait.Patience).foreach(_ => looking.timed(false))
    assert(due == one)
    looking.timed(true)
    assert(due == some)
    looking.paid()
    assert(due == every)
  }
}

private object LookAheadSuite {
  val failed = TrieMap.empty[Int, Unit] // stages of looks that failed
  @volatile var hold = false
  @volatile var reached = new CountDownLatch(1)

  def looksAhead: Boolean =
    Option(TaskContext.get())
      .exists(_.getLocalProperty("spark.job.description").startsWith("Skewless looks ahead"))

  /** Waits in a look ahead, until the task is killed. */
  val holding = udf { (v: Long) =>
    if (hold && looksAhead) {
      reached.countDown()
      while (hold) Thread.sleep(20)
    }
    v
  }
}
