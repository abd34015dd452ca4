package io.skewless.observe

import java.util.concurrent.TimeUnit.{MILLISECONDS, NANOSECONDS}

/**
 * Lets the planner of a batch wait, for a bounded time, until the loop has decided about the batch before, so
 * that a plan made from batch N takes effect in N+1 rather than in N+2, or one made from N itself in N.
 * `lock` is the lock under which tables are published and looked up; waiting lets go of it, and all methods
 * are called under it. Driver.
 *
 * A batch that waits is in the offset log, but nobody has planned it, in this run or an earlier one: the
 * first batch of a run never waits, and whatever an earlier run planned is at or below it. So a table may
 * still be pinned to it.
 *
 * @param maxMs how long to wait at most; 0: never
 */
final class PlanWait(lock: AnyRef, maxMs: => Long) {
  private var decidedTo, shownTo = -1L
  private var missed = 0

  private var waiting = -1L

  /**
   * Whether the planner of this batch waits, or is about to: a table may be pinned to a batch that is in the
   * offset log.
   */
  def isOpen(batchId: Long): Boolean = waiting == batchId || shownTo == batchId

  /** Whether the planner of this batch waits at all. */
  def waits(batchId: Long): Boolean =
    maxMs > 0 && (missed < PlanWait.Patience || batchId % PlanWait.Probe == 0)

  /** The loop is shown what this batch itself holds: its planner waits for what becomes of that. */
  def shown(batchId: Long): Unit = shownTo = batchId

  def await(batchId: Long): Unit = if (waits(batchId)) {
    val until = System.nanoTime() + MILLISECONDS.toNanos(maxMs)
    val needed = if (shownTo == batchId) batchId else batchId - 1
    waiting = batchId
    try
      while (decidedTo < needed && System.nanoTime() < until && maxMs > 0)
        lock.wait(1L.max(NANOSECONDS.toMillis(until - System.nanoTime())))
    finally {
      waiting = -1
      shownTo = -1
    }
    missed = if (decidedTo < needed) missed + 1 else 0
  }

  def decided(batchId: Long): Unit = {
    decidedTo = decidedTo.max(batchId)
    lock.notifyAll()
  }
}

object PlanWait {

  /**
   * A loop that was late so many times in a row is waited for in every `Probe`th batch only, until it is in
   * time again.
   */
  val Patience = 3
  val Probe = 20
}
