package io.skewless

import java.lang.{Double => JDouble}
import java.util.{List => JList}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{Column, DataFrame, SparkSession}
import org.apache.spark.sql.classic.{SparkSession => ClassicSession}
import org.apache.spark.sql.skewless.{Routing, RunningQueries, Watching}
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * All that Python may call, over Py4J, one direction only: `gateway.py` is its other half. Arguments and results are plain values,
 * tables are `TableCodec`'s bytes. Every refusal is a `SkewlessException`.
 */
object Gateway {

  def version(): String = SparkLine.JarVersion

  /** Throws unless jar, Spark line, plugin and extension are all there. */
  def check(session: SparkSession): Unit = {
    SparkLine.check(session.version)
    Routing.checkSession(session.asInstanceOf[ClassicSession])
    driver(session)
  }

  def repartition(df: DataFrame, n: Int, columns: JList[Column], table: Array[Byte]): DataFrame =
    Routing.repartition(df, n, columns.asScala.toSeq, Option(table).map(TableCodec.decode))

  def keyHash(session: SparkSession, columns: JList[Column]): Column =
    Routing.keyHash(session.asInstanceOf[ClassicSession], columns.asScala.toSeq)

  /** (epoch, first batch under it). */
  def publish(session: SparkSession, query: StreamingQuery, table: Array[Byte]): Array[Long] = {
    val (epoch, batch) = RunningQueries.publish(query, TableCodec.decode(table), driver(session).conf)
    Array(epoch, batch)
  }

  /** The newest table of a query as bytes, or null if none was published. */
  def latest(query: StreamingQuery): Array[Byte] = RunningQueries.latest(query).map(TableCodec.encode).orNull

  /** The loads of a query's routed exchanges, oldest first; an empty id asks for batch jobs. */
  def loads(session: SparkSession, queryId: String): JList[BatchLoads] = driver(session).listener.loads(queryId).asJava

  /** Waits until a batch of any query is committed or shown, or for so many milliseconds: whether one was. */
  def await(session: SparkSession, millis: Long): Boolean = driver(session).listener.await(millis)

  /**
   * The committed batches of a query after `after`, oldest first. From the first call on the query's keys are counted, its planner
   * waits up to `planWaitMs` for the loop to decide, and with `lookAhead` a batch is shown before it is planned (`upcoming`).
   */
  def observed(
      session: SparkSession,
      queryId: String,
      after: Long,
      planWaitMs: Long,
      lookAhead: Boolean
  ): JList[ObservedBatch] = {
    RunningQueries.watch(queryId, Watching(planWaitMs, lookAhead))
    driver(session).listener.observed(queryId, after).asJava
  }

  /** The newest batch of a query that was shown before it was planned, or null; its planner waits until it is `decided`. */
  def upcoming(session: SparkSession, queryId: String): ObservedBatch = driver(session).listener.upcoming(queryId).orNull

  /** The newest committed batch of a query, -1 before the first: ask before `observed`, and tell `decided` after it. */
  def newestCommitted(session: SparkSession, queryId: String): Long = driver(session).listener.newestCommitted(queryId)

  /** The loop has decided about all batches of a query up to this one: its planner need not wait. */
  def decided(queryId: String, batch: Long): Unit = RunningQueries.decided(queryId, batch)

  /** The loop has ended: no keys are counted any more. */
  def unwatch(): Unit = RunningQueries.unwatch()

  /** The committed swaps of a query's run as JSON, oldest first. */
  def swaps(query: StreamingQuery): JList[String] = RunningQueries.swaps(query).map(_.json).asJava

  /** What the loop knows of a query, for Spark's metrics: imbalance and pause may be null. False if no such query runs. */
  def tell(session: SparkSession, queryId: String, imbalance: JDouble, pauseMs: JDouble, errors: Long): Boolean =
    driver(session).metrics.told(queryId, imbalance, pauseMs, errors)

  private def driver(session: SparkSession): SkewlessDriver =
    SkewlessPlugin.driverOf(session.asInstanceOf[ClassicSession].sparkContext).getOrElse {
      throw SkewlessException.session(
        s"the application has no Skewless plugin. Set spark.plugins=${classOf[SkewlessPlugin].getName} before the session starts, " +
          "or build it with skewless.configure(builder)."
      )
    }
}
