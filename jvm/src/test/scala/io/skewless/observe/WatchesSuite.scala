package io.skewless.observe

import java.util.UUID

import org.scalatest.funsuite.AnyFunSuite

/** Several loops in one application: none swallows another's news, or ends another's watch. */
class WatchesSuite extends AnyFunSuite {
  private val (one, other) = (UUID.randomUUID(), UUID.randomUUID())

  test("each loop hears of the same news, once") {
    val news = new News
    news.add()
    assert(news.await("a", 1))
    assert(news.await("b", 1), "the news that a has heard of is news to b")
    assert(!news.await("a", 1) && !news.await("b", 1))
    news.add()
    news.forget("a")
    assert(news.await("b", 1))
  }

  test("a loop that ends leaves the watches of others alone") {
    val watches = new Watches
    watches.watch("a", one, Watching(planWaitMs = 500))
    watches.watch("b", one, Watching(planWaitMs = 100, lookAhead = true))
    watches.watch("a", other, Watching())
    assert(watches.of(one).contains(Watching(planWaitMs = 500, lookAhead = true)))
    watches.unwatch("a")
    assert(watches.of(one).contains(Watching(planWaitMs = 100, lookAhead = true)))
    assert(watches.of(other).isEmpty)
  }

  test("a loop that watches again changes how, and a run that ends is watched by nobody") {
    val watches = new Watches
    watches.watch("a", one, Watching(lookAhead = true))
    watches.watch("a", one, Watching())
    assert(watches.of(one).contains(Watching()))
    watches.ended(one)
    assert(watches.of(one).isEmpty)
  }

  test("a query keeps its newest batches, however many exchanges each has") {
    val kept = new Retained[(String, Long)](1, _._1, _._2)
    for ((batch, i) <- Seq(3L, 3L, 4L, 4L).zipWithIndex) kept.add(i.toLong, ("q", batch))
    assert(kept.of("q") == Seq(("q", 4L), ("q", 4L)), "both sides of a join belong to the running batch")
    kept.add(9, ("other", 1L))
    assert(kept.of("q").size == 2, "the bound is of each query")
  }
}
