package org.apache.spark.sql.skewless.query

import java.util.concurrent.TimeoutException

import scala.jdk.CollectionConverters._

import io.skewless.observe.{PlanWait, Watching}
import org.apache.spark.sql.skewless.{Operator, Queries, SparkPrivate, StatefulRun}
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.funsuite.AnyFunSuite

/** A batch that waits for the plan made from the batch before it. */
class PlanWaitSuite extends AnyFunSuite with StatefulRun {

  private val count = Operator.named("count")
  private val batches = input(4)
  private val forEver = 3600 * 1000L
  private lazy val expected = plain(count.query, count.mode, batches)

  private def untilPlannerWaits(): Unit = {
    def waits = Thread.getAllStackTraces.values.asScala
      .exists(_.exists(_.getClassName == classOf[PlanWait].getName))
    if (!Iterator.continually { Thread.sleep(20); waits }.take(1500).contains(true))
      throw new TimeoutException("no planner waits")
  }

  /** Batch 0 has run, batch 1 waits, and a table is published meanwhile: it must take effect in batch 1. */
  private def whileBatchOneWaits(body: (Run, StreamingQuery) => Unit): Unit =
    withRun(count.query, count.mode, ours) { run =>
      assert(expected.rows.nonEmpty) // now: it ends all queries
      val query = run.start()
      Queries.watch(query, Watching(forEver))
      try {
        run.stream.addData(batches.head)
        query.processAllAvailable() // the first batch of a run has nothing to wait for
        run.stream.addData(batches(1))
        untilPlannerWaits()
        assert(Queries.publish(query, table(hashes(batches, "k"), 1), limits)._2 == 1)
        body(run, query)
      } finally Queries.unwatch(query)
    }

  private def finish(run: Run, query: StreamingQuery): Unit = {
    batches.drop(2).foreach { rows => run.stream.addData(rows); query.processAllAvailable() }
    same(run.outcome, expected)
    SparkPrivate.drainListeners(spark.sparkContext)
    assert(Queries.swaps(query).map(swap => (swap.batch, swap.epoch)) == Seq((1, 1)))
  }

  test("a batch that waits takes the table published meanwhile, and its rows are plain Spark's") {
    whileBatchOneWaits { (run, query) =>
      Queries.decided(query, 0)
      query.processAllAvailable()
      Queries.unwatch(query)
      finish(run, query)
    }
  }

  test("a second table published in the same wait takes effect in the batch after it") {
    whileBatchOneWaits { (_, query) =>
      assert(Queries.publish(query, table(hashes(batches, "k"), 2), limits)._2 == 2)
      Queries.decided(query, 0)
    }
  }

  test(
    "a query that is stopped while its batch waits runs the batch under the same table when it starts again"
  ) {
    whileBatchOneWaits { (run, query) =>
      query.stop()
      Queries.unwatch(query)
      val again = run.start()
      again.processAllAvailable()
      finish(run, again)
    }
  }

  test("a loop that is late again and again is waited for now and then only, until it is in time") {
    val lock = new Object
    @volatile var maxMs = 1L
    val turn = lock.synchronized(new PlanWait(lock, maxMs))
    def await(batch: Long): Unit = lock.synchronized(turn.await(batch))
    def ends(body: => Unit): Unit = {
      val thread = new Thread(() => body)
      thread.start()
      thread.join(60000)
      assert(!thread.isAlive)
    }
    def waitsFor(batch: Long): Unit = ends {
      val planner = new Thread(() => await(batch))
      planner.start()
      untilPlannerWaits()
      lock.synchronized(turn.decided(batch - 1))
      planner.join()
    }
    (1L to PlanWait.Patience.toLong).foreach(await)
    maxMs = forEver
    ends((4L until 20L).foreach(await))
    lock.synchronized(turn.decided(5)) // about an old batch: it is still late
    ends(await(10))
    waitsFor(20)
    waitsFor(21)
  }
}
