package org.apache.spark.sql.skewless

import java.util.concurrent.TimeUnit.{MILLISECONDS, NANOSECONDS}

/**
 * Lets the planner of a batch wait, for a bounded time, until the loop has decided about the batch before, so that a plan made from
 * batch N takes effect in N+1 rather than in N+2. `lock` is the lock under which tables are published and looked up; waiting lets
 * go of it, and all methods are called under it. Driver.
 *
 * A batch that waits is in the offset log, but nobody has planned it, in this run or an earlier one: the first batch of a run never
 * waits, and whatever an earlier run planned is at or below it. So a table may still be pinned to it.
 *
 * @param maxMs how long to wait at most; 0: never
 */
private[skewless] final class PlannersTurn(lock: AnyRef, maxMs: => Long) {
  private var decidedTo = -1L
  private var missed = 0

  /** The batch whose planner waits. */
  var waiting: Option[Long] = None

  def await(batchId: Long): Unit = {
    val millis = if (missed < PlannersTurn.Patience || batchId % PlannersTurn.Probe == 0) maxMs else 0L
    if (millis > 0) {
      val until = System.nanoTime() + MILLISECONDS.toNanos(millis)
      waiting = Some(batchId)
      try
        while (decidedTo < batchId - 1 && System.nanoTime() < until && maxMs > 0)
          lock.wait(1L.max(NANOSECONDS.toMillis(until - System.nanoTime())))
      finally waiting = None
      missed = if (decidedTo < batchId - 1) missed + 1 else 0
    }
  }

  def decided(batchId: Long): Unit = {
    decidedTo = decidedTo.max(batchId)
    lock.notifyAll()
  }
}

private[skewless] object PlannersTurn {

  /** A loop that was late so many times in a row is waited for in every `Probe`th batch only, until it is in time again. */
  val Patience = 3
  val Probe = 20
}
