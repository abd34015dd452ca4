package org.apache.spark.sql.skewless

import io.skewless.SkewlessConf
import io.skewless.observe.{Application, BatchListener, Watching}
import io.skewless.table.Table
import org.apache.spark.SparkContext
import org.apache.spark.sql.classic.{SparkSession => ClassicSession}
import org.apache.spark.sql.skewless.query.{QueryRegistry, SwapRecord}
import org.apache.spark.sql.streaming.StreamingQuery

/** What the gateway does with running queries, in the suites' own types; they have one loop. */
object Queries {
  val Loop = "suites"

  private def context(query: StreamingQuery): SparkContext =
    query.sparkSession.asInstanceOf[ClassicSession].sparkContext

  def publish(query: StreamingQuery, table: Table, conf: SkewlessConf): (Long, Long) =
    QueryRegistry.run(query).tables.publish(table, conf)

  def release(query: StreamingQuery, conf: SkewlessConf): Long = QueryRegistry.run(query).tables.release(conf)

  def latest(query: StreamingQuery): Option[Table] = QueryRegistry.run(query).tables.latest
  def swaps(query: StreamingQuery): Seq[SwapRecord] = QueryRegistry.run(query).swaps.records

  def watch(query: StreamingQuery, how: Watching = Watching()): Unit =
    QueryRegistry.of(context(query)).watch(Loop, query, how)

  def unwatch(query: StreamingQuery): Unit = QueryRegistry.of(context(query)).unwatch(Loop)

  def decided(query: StreamingQuery, batchId: Long): Unit =
    QueryRegistry.of(context(query)).decided(query.id.toString, batchId)

  def listener(context: SparkContext): BatchListener = Application.of(context).get.listener
}
