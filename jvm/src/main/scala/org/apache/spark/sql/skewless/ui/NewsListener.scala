// In Spark's package because the stores behind Spark's UI are private to it.
package org.apache.spark.sql.skewless.ui

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.status.ElementTrackingStore
import org.apache.spark.status.KVUtils.KVIndexParam
import org.apache.spark.util.kvstore.KVStore

/** A `QueryView` in the store behind Spark's UI, which may lie on a history server's disk. */
private[ui] final class StoredQuery(@KVIndexParam val id: String, val json: String)

/**
 * Adds up the news of loops, query by query, in the store behind Spark's UI. Runs on the listener bus of a
 * running application, which writes at once, or in the history server, which writes when all has been read.
 */
private[ui] final class NewsListener(store: ElementTrackingStore, live: Boolean)
    extends SparkListener
    with Logging {
  private var queries = Vector.empty[QueryView] // the one with the oldest news first

  if (!live) store.onFlush(queries.foreach(write))

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case LoopNews(news) =>
      try QueryView.read(news).foreach(add)
      catch {
        case NonFatal(e) => logWarning("news of a Skewless loop cannot be read; its tab misses them", e)
      }
    case _ =>
  }

  private def add(later: QueryView): Unit = {
    val known = queries.find(_.id == later.id)
    queries = queries.filterNot(_.id == later.id) :+ known.fold(later)(_.and(later))
    while (queries.size > NewsListener.KeptQueries) forget()
    if (live) write(queries.last)
  }

  /** The query that has been silent for longest, one that has ended if there is any. */
  private def forget(): Unit = {
    val silent = queries.find(!_.running).getOrElse(queries.head)
    queries = queries.filterNot(_ eq silent)
    if (live) store.delete(classOf[StoredQuery], silent.id)
  }

  private def write(query: QueryView): Unit = store.write(new StoredQuery(query.id, query.json))
}

private[ui] object NewsListener {
  val KeptQueries = 50

  /** What the store holds: running queries first, then by name. */
  def queries(store: KVStore): Seq[QueryView] = {
    val found = Seq.newBuilder[QueryView]
    val all = store.view(classOf[StoredQuery]).closeableIterator()
    try while (all.hasNext) found += QueryView.one(all.next().json)
    finally all.close()
    found.result().sortBy(query => (!query.running, query.title, query.id))
  }
}
