// In Spark's package because it reads StreamExecution, which Spark keeps private.
package org.apache.spark.sql.skewless.query

import scala.util.control.NonFatal

import io.skewless.SkewlessException
import io.skewless.observe.{Application, BatchListener, JoinInput, KeyCounts, QueryMetrics, Watches, Watching}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.skewless.placement.{AliveExecutors, PlacementWishes}
import org.apache.spark.util.SerializableConfiguration

/**
 * One run of one query: its tables, the book of its swaps, and what is measured of its state, each in a file
 * of its own. Driver.
 */
final class QueryRun private[query] (val execution: StreamExecution, watches: Watches) {
  private val attempt = new Attempt(execution)
  val tables = new QueryTables(execution, watching, attempt)
  val swaps = new SwapBook(execution, tables, metrics, attempt)
  val stateBytes = new StateWatch(attempt)
  private[skewless] val wishes = new PlacementWishes(AliveExecutors.of(execution.sparkSession.sparkContext))

  /** Hadoop's settings of the query, for its exports: a broadcast of them takes as long to make as a job. */
  private[skewless] lazy val hadoop: Broadcast[SerializableConfiguration] = {
    val session = execution.sparkSessionForStream
    SerializableConfiguration.broadcast(session.sparkContext, session.sessionState.newHadoopConf())
  }

  /** How loops watch this run; None if none does. */
  def watching: Option[Watching] = watches.of(execution.runId)

  /** The accumulator for the keys of an exchange of this batch, if somebody watches. */
  def keyCounts(batchId: Long, join: JoinInput = JoinInput.None): Option[KeyCounts] = watching.flatMap { _ =>
    BatchListener.trackKeys(execution.sparkSession.sparkContext, execution.id.toString, batchId, join)
  }

  def begin(): Unit =
    if (execution.isActive) metrics.foreach(_.begin(execution.runId, execution.id, execution.name))

  /** Where the partitions of the query's state should run, from the next batch that is planned on. */
  def place(byPartition: Map[Int, String]): Unit = {
    def refuse(why: String) = throw SkewlessException.query(s"query ${execution.id} cannot be placed: $why.")
    if (!execution.isActive) refuse("it has stopped, and wishes end with the run")
    if (tables.keepsNoState) refuse("it keeps no state, so Spark places its tasks by their input")
    StateShape.obstacle(execution.sparkSessionForStream.sessionState.conf).foreach(refuse)
    wishes.replace(byPartition, tables.statePartitions)
  }

  /** The wishes in force. */
  def placed: Map[Int, String] = wishes.byPartition

  /** A batch is committed. Called on the listener bus, once per batch. */
  def committed(batchId: Long, batchMs: Long): Unit = {
    tables.committed(batchMs)
    swaps.committed(batchId, batchMs)
  }

  /** The run is over. Called on the listener bus. */
  def ended(): Unit = tables.cleanScratch(before = Long.MaxValue)

  def forget(): Unit = metrics.foreach(_.end(execution.runId))

  /** Where the application's metrics are kept, if it has the plugin. */
  private def metrics: Option[QueryMetrics] =
    Application.of(execution.sparkSession.sparkContext).map(_.metrics)
}

/** Does what a query can do without: an error is logged, and the query goes on. */
private[query] final class Attempt(execution: StreamExecution) extends Logging {

  /** Whether it went well. */
  def apply(what: String)(body: => Unit): Boolean =
    try { body; true }
    catch {
      case NonFatal(e) =>
        if (execution.isActive) logWarning(s"query ${execution.id}: could not $what", e)
        else logInfo(s"query ${execution.id} has stopped and could not $what: $e")
        false
    }
}
