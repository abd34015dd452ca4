package io.skewless.observe

/**
 * Whether looking ahead is worth it for one run. Every batch is looked at while that leads to swaps; after
 * three looks in a row that did not, every fifth. While the last two looks both took more than a share of a
 * batch, or the last three failed, every twentieth. Thread-safe.
 */
final class LookAheadPace(maxShare: => Double) {
  import LookAheadPace._

  private var lookMs = (0L, 0L) // the last two: the first of a run loads classes and compiles code
  private var failures, idle = 0
  @volatile var batchMs = 0L

  def due(batchId: Long): Boolean = synchronized {
    if (failures >= PlanWait.Patience || lookMs._1.min(lookMs._2) > maxShare * batchMs.max(1))
      batchId % PlanWait.Probe == 0
    else idle < PlanWait.Patience || batchId % Idle == 0
  }

  /** Notes how long a look takes, and whether it went well. */
  def timed(look: => Boolean): Unit = {
    val started = System.nanoTime()
    val well = look
    synchronized {
      failures = if (well) 0 else failures + 1
      if (well) idle += 1
      lookMs = (lookMs._2, (System.nanoTime() - started) / 1000000)
    }
  }

  /** The last look led to a swap. */
  def paid(): Unit = synchronized { idle = 0 }
}

object LookAheadPace {
  val Idle = 5L
}
