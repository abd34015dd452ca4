// In Spark's package because it reads StreamExecution, which Spark keeps private.
package org.apache.spark.sql.skewless.query

import java.util.UUID

import scala.collection.concurrent.TrieMap

import io.skewless.SkewlessException
import io.skewless.observe.{RunEvents, Watches, Watching}
import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.streaming.runtime.{StreamExecution, StreamingQueryWrapper}
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * The running queries of one application, each with what Skewless keeps of its run, and who watches them. One
 * per SparkContext, in the driver: `QueryRegistry.of`.
 */
final class QueryRegistry private extends RunEvents {
  private val byRun = TrieMap.empty[UUID, QueryRun]
  private val watches = new Watches

  /** What is kept of a run; made on first use. */
  def run(execution: StreamExecution): QueryRun = byRun.getOrElse(execution.runId, begin(execution))

  private def begin(execution: StreamExecution): QueryRun = synchronized {
    byRun.getOrElse(
      execution.runId, {
        byRun.values.filter(!_.execution.isActive).foreach(known => forget(known.execution.runId))
        val run = new QueryRun(execution, watches)
        byRun(execution.runId) = run
        run.begin()
        run
      }
    )
  }

  private def forget(run: UUID): Option[QueryRun] = {
    val known = byRun.remove(run)
    known.foreach(_.forget())
    known
  }

  /** From the next batch on a loop watches this run: its keys are counted, and its planner may wait. */
  def watch(loop: String, query: StreamingQuery, how: Watching): Unit = {
    val execution = QueryRegistry.executionOf(query)
    if (execution.isActive) {
      watches.watch(loop, execution.runId, how)
      if (!execution.isActive) watches.ended(execution.runId) // its end may have been heard of in between
    }
  }

  /** The loop has ended: what only this loop watched is not counted any more, and no planner waits for it. */
  def unwatch(loop: String): Unit = {
    watches.unwatch(loop)
    byRun.values.foreach(
      _.tables.decided(-1)
    ) // wakes those who wait, who look again whether somebody watches
  }

  /** The loop watches this run no more, though it may watch others. */
  def unwatch(loop: String, query: StreamingQuery): Unit = {
    val execution = QueryRegistry.executionOf(query)
    watches.unwatch(loop, execution.runId)
    byRun.get(execution.runId).foreach(_.tables.decided(-1))
  }

  /** A loop has decided about all batches of a query up to this one. */
  def decided(queryId: String, batchId: Long): Unit =
    byRun.values.filter(_.execution.id.toString == queryId).foreach(_.tables.decided(batchId))

  override def committed(run: UUID, batchId: Long, batchMs: Long): Unit =
    byRun.get(run).foreach(_.committed(batchId, batchMs))

  override def ended(run: UUID): Unit = {
    watches.ended(run)
    forget(run).foreach(_.ended())
  }
}

object QueryRegistry {
  private val byContext = TrieMap.empty[SparkContext, QueryRegistry]

  /**
   * The registry of an application; one that has stopped leaves nothing behind for the next in its process.
   */
  def of(context: SparkContext): QueryRegistry = byContext.getOrElse(context, begin(context))

  private def begin(context: SparkContext): QueryRegistry = synchronized {
    byContext.keys.filter(_.isStopped).foreach(byContext.remove)
    byContext.getOrElseUpdate(context, new QueryRegistry)
  }

  def run(query: StreamingQuery): QueryRun = {
    val execution = executionOf(query)
    of(execution.sparkSession.sparkContext).run(execution)
  }

  def run(batch: RunningBatch): QueryRun = of(batch.execution.sparkSession.sparkContext).run(batch.execution)

  /** How many applications of this process have a registry: none that has stopped should. */
  def kept: Int = byContext.size

  /** The application ends. */
  def forget(context: SparkContext): Unit = synchronized { byContext.remove(context); () }

  private def executionOf(query: StreamingQuery): StreamExecution = query match {
    case wrapper: StreamingQueryWrapper => wrapper.streamingQuery
    case execution: StreamExecution => execution
    case other =>
      throw SkewlessException.query(
        s"$other is not a streaming query of this Spark. Pass what writeStream.start() gave."
      )
  }
}
