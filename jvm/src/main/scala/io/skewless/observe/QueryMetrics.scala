package io.skewless.observe

import java.lang.{Double => JDouble}
import java.util.UUID

import scala.collection.mutable
import scala.util.control.NonFatal

import com.codahale.metrics.{Counter, DefaultSettableGauge, Gauge, MetricRegistry}
import org.slf4j.LoggerFactory

/**
 * What Spark's metric sinks show of each running query; `docs/metrics.md` lists the names. One an
 * application, in the driver. The tables' part comes from `QueryRun`, the loop's part from Python. A
 * registry that refuses costs a metric, never a query.
 */
final class QueryMetrics(registry: MetricRegistry) {
  import QueryMetrics._

  private val open = mutable.LinkedHashMap.empty[UUID, OpenQuery]

  // Spark hands a plugin's registry to its sinks only if it holds something when the application starts.
  attempt(registry.register("queries", (() => Int.box(synchronized(open.size))): Gauge[Integer]))

  /**
   * A run has begun; an earlier run of the same query, whose end has not been heard of yet, gives its name
   * up.
   */
  def begin(run: UUID, queryId: UUID, name: String): Unit = attempt {
    open.filter(_._2.id == queryId).keys.toSeq.foreach(end)
    val label = labels(Option(name).fold(queryId.toString)(clean), queryId)
      .find(l => !open.values.exists(_.label == l))
      .get
    open(run) = new OpenQuery(queryId, label)
    set(run, "epoch", 0L)
    set(run, "entries", 0)
    raise(run, "swaps", 0)
    raise(run, "movedBytes", 0)
  }

  /** A batch was committed under this table. */
  def committed(run: UUID, epoch: Long, entries: Int, swapped: Boolean): Unit = attempt {
    set(run, "epoch", epoch)
    set(run, "entries", entries)
    if (swapped) raise(run, "swaps", 1)
  }

  /** The swap of a committed batch has moved state. */
  def moved(run: UUID, bytes: Long, exportMs: Long): Unit = attempt {
    raise(run, "movedBytes", bytes)
    set(run, "exportMs", exportMs)
  }

  /** What the loop knows, null where it does not know; false if no such query runs. */
  def show(queryId: String, imbalance: JDouble, pauseMs: JDouble, errors: Long): Boolean = synchronized {
    val found = open.find(_._2.id.toString == queryId)
    found.foreach { case (run, _) =>
      attempt {
        if (imbalance != null) set(run, "imbalance", imbalance)
        if (pauseMs != null) set(run, "pauseMs", pauseMs)
        set(run, "errors", errors)
      }
    }
    found.isDefined
  }

  def end(run: UUID): Unit = attempt(open.remove(run).foreach { query =>
    (query.gauges.keys ++ query.counters.keys).foreach(name => registry.remove(query.path(name)))
  })

  def clear(): Unit = synchronized(open.keys.toSeq.foreach(end))

  private def set(run: UUID, name: String, value: Any): Unit = open.get(run).foreach { query =>
    query.gauges
      .getOrElseUpdate(name, registry.register(query.path(name), new DefaultSettableGauge[Any]))
      .setValue(value)
  }

  private def raise(run: UUID, name: String, by: Long): Unit = open.get(run).foreach { query =>
    query.counters.getOrElseUpdate(name, registry.register(query.path(name), new Counter)).inc(by)
  }

  private def attempt(body: => Any): Unit = synchronized {
    try { body; () }
    catch { case NonFatal(e) => log.warn("a metric of Skewless could not be kept; queries go on", e) }
  }
}

private object QueryMetrics {
  private val log = LoggerFactory.getLogger(classOf[QueryMetrics])
  private val MaxName = 100

  final class OpenQuery(val id: UUID, val label: String) {
    val gauges = mutable.HashMap.empty[String, DefaultSettableGauge[Any]]
    val counters = mutable.HashMap.empty[String, Counter]
    def path(name: String): String = s"query.$label.$name"
  }

  /** A part of a metric's name, and of the file's name that a sink makes of it: no dots, slashes, spaces. */
  private def clean(name: String): String = name.take(MaxName).replaceAll("[^A-Za-z0-9_-]", "_")

  /**
   * What a query may be called, best first: names of different sessions, or once cleaned, may be the same.
   */
  private def labels(name: String, id: UUID): Seq[String] =
    Seq(name, s"$name-${id.toString.take(8)}", s"$name-$id", UUID.randomUUID().toString)
}
