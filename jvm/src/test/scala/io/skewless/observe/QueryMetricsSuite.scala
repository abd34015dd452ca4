package io.skewless.observe

import java.util.UUID

import scala.jdk.CollectionConverters._

import com.codahale.metrics.{Counter, Gauge, Metric, MetricRegistry}
import org.scalatest.funsuite.AnyFunSuite

/** What a sink reads of running queries, and that nothing of it is left once they end. */
class QueryMetricsSuite extends AnyFunSuite {

  private def value(metric: Metric): Any = metric match {
    case gauge: Gauge[_] => gauge.getValue
    case counter: Counter => counter.getCount
    case other => fail(s"$other")
  }

  private def shown(registry: MetricRegistry): Map[String, Any] =
    registry.getMetrics.asScala.view.mapValues(value).toMap

  private def fixture(name: String = "clicks"): (MetricRegistry, QueryMetrics, UUID, UUID) = {
    val registry = new MetricRegistry
    val metrics = new QueryMetrics(registry)
    val (run, id) = (UUID.randomUUID(), UUID.randomUUID())
    metrics.begin(run, id, name)
    (registry, metrics, run, id)
  }

  test("a query has its metrics from its first batch on, the loop's as soon as the loop knows them") {
    val (registry, metrics, run, id) = fixture()
    assert(
      shown(registry) ==
        Map[String, Any](
          "queries" -> 1,
          "query.clicks.epoch" -> 0,
          "query.clicks.entries" -> 0,
          "query.clicks.swaps" -> 0,
          "query.clicks.movedBytes" -> 0
        )
    )
    metrics.committed(run, epoch = 3, entries = 40, swapped = true)
    metrics.moved(run, bytes = 1000, exportMs = 70)
    metrics.committed(run, epoch = 3, entries = 40, swapped = false)
    metrics.moved(run, bytes = 500, exportMs = 60)
    assert(metrics.show(id.toString, 0.25, null, 2))
    assert(
      shown(registry) == Map[String, Any](
        "queries" -> 1,
        "query.clicks.epoch" -> 3,
        "query.clicks.entries" -> 40,
        "query.clicks.swaps" -> 1,
        "query.clicks.movedBytes" -> 1500,
        "query.clicks.exportMs" -> 60,
        "query.clicks.imbalance" -> 0.25,
        "query.clicks.errors" -> 2
      )
    )
    metrics.show(id.toString, null, 12.5, 3)
    assert(
      shown(registry)("query.clicks.pauseMs") == 12.5 && shown(registry)("query.clicks.imbalance") == 0.25
    )
  }

  test("nothing is left of a query that has ended") {
    val (registry, metrics, run, id) = fixture()
    metrics.show(id.toString, 0.5, 1.0, 0)
    metrics.moved(run, 1, 1)
    metrics.end(run)
    metrics.end(run)
    assert(shown(registry) == Map[String, Any]("queries" -> 0))
    assert(!metrics.show(id.toString, 0.5, 1.0, 0))
    metrics.committed(run, 1, 1, swapped = true)
    assert(shown(registry) == Map[String, Any]("queries" -> 0))
  }

  test("names are cleaned; a query without one goes by its id; equal names are told apart") {
    val (registry, metrics, _, id) = fixture("a.b/c d\u00e9")
    metrics.begin(UUID.randomUUID(), UUID.randomUUID(), "a_b_c_d_")
    val nameless = UUID.randomUUID()
    metrics.begin(UUID.randomUUID(), nameless, null)
    val labels = shown(registry).keySet.collect { case s"query.$label.epoch" => label }
    assert(labels.size == 3 && labels("a_b_c_d_") && labels(nameless.toString), labels)
    assert(labels.forall(_.matches("[A-Za-z0-9_-]+")))
    metrics.begin(UUID.randomUUID(), UUID.randomUUID(), "x" * 5000)
    assert(shown(registry).keys.forall(_.length < 200))
    metrics.clear()
    assert(shown(registry) == Map[String, Any]("queries" -> 0) && id != nameless)
  }

  test("a query that starts again keeps its name, before the end of its earlier run was heard of and after") {
    val (registry, metrics, first, id) = fixture()
    metrics.committed(first, 7, 1, swapped = false)
    val second = UUID.randomUUID()
    metrics.begin(second, id, "clicks")
    metrics.end(first)
    metrics.committed(second, 8, 1, swapped = false)
    assert(shown(registry)("query.clicks.epoch") == 8 && shown(registry)("queries") == 1)
  }

  test("a registry that refuses everything fails nobody") {
    var asked = 0
    val broken = new MetricRegistry {
      override def register[T <: Metric](name: String, metric: T): T = {
        asked += 1; throw new IllegalArgumentException(name)
      }
      override def remove(name: String): Boolean = { asked += 1; throw new IllegalStateException(name) }
    }
    val metrics = new QueryMetrics(broken)
    val (run, id) = (UUID.randomUUID(), UUID.randomUUID())
    metrics.begin(run, id, "clicks")
    metrics.committed(run, 1, 1, swapped = true)
    metrics.moved(run, 1, 1)
    metrics.show(id.toString, 0.1, 1.0, 0)
    metrics.end(run)
    assert(asked >= 5, "the fault did not fire")
  }
}
