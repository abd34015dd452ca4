package io.skewless.observe

import java.util.UUID

import scala.collection.concurrent.TrieMap

/**
 * How a loop watches a query.
 *
 * @param planWaitMs how long the planner of a batch may wait until the loop has decided; 0: it never waits
 * @param lookAhead  whether the loop decides about a batch by that batch's own keys, counted before it is
 *                   planned
 * @param lookShare  the share of a batch's time that such a look may take, to be made in every batch
 */
final case class Watching(planWaitMs: Long = 0, lookAhead: Boolean = false, lookShare: Double = 0.125) {

  /** What serves both of two loops. */
  def and(other: Watching): Watching = Watching(
    planWaitMs.max(other.planWaitMs),
    lookAhead || other.lookAhead,
    lookShare.max(other.lookShare)
  )
}

/** Which loop watches which run of which query, and how. Thread-safe. */
final class Watches {
  private val byRun = TrieMap.empty[UUID, Map[String, Watching]]

  /** From the next batch on. Again with other settings changes them. */
  def watch(loop: String, run: UUID, how: Watching): Unit = synchronized {
    byRun(run) = byRun.getOrElse(run, Map.empty) + (loop -> how)
  }

  /** The loop watches nothing any more. */
  def unwatch(loop: String): Unit = byRun.keys.foreach(unwatch(loop, _))

  /** The loop watches this run no more. */
  def unwatch(loop: String, run: UUID): Unit = synchronized {
    val others = byRun.getOrElse(run, Map.empty) - loop
    if (others.isEmpty) byRun.remove(run) else byRun(run) = others
  }

  def ended(run: UUID): Unit = synchronized { byRun.remove(run); () }

  /** None if nobody watches the run. */
  def of(run: UUID): Option[Watching] = byRun.get(run).flatMap(_.values.reduceOption(_.and(_)))
}
