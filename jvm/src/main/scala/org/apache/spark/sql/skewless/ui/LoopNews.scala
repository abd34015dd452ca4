// In Spark's package because the bus of listeners is private to it.
package org.apache.spark.sql.skewless.ui

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.SparkListenerEvent

/**
 * What a loop has to tell since the last time, as JSON: `QueryView.read` reads it, `report/news.py` writes
 * it. An event on Spark's bus like any other, so that the event log keeps it and the history server can show
 * it. A history server without our jar skips it.
 */
final case class LoopNews(news: String) extends SparkListenerEvent

object LoopNews {

  /** Whether anything of this application keeps news: a UI or an event log. Called by the gateway. */
  def post(context: SparkContext, news: String): Boolean = {
    val isKept = context.ui.isDefined || context.isEventLogEnabled
    if (isKept) context.listenerBus.post(LoopNews(news))
    isKept
  }
}
