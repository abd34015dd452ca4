// In Spark's package because tabs of Spark's UI are private to it.
package org.apache.spark.sql.skewless.ui

import java.net.URLEncoder
import java.nio.charset.StandardCharsets.UTF_8

import scala.util.control.NonFatal

import jakarta.servlet.http.HttpServletRequest
import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.SparkListener
import org.apache.spark.status.{AppHistoryServerPlugin, ElementTrackingStore}
import org.apache.spark.ui.{SparkUI, SparkUITab, UIUtils}

/**
 * The tab "Skewless" of an application's UI: its queries, and a page for each. It opens no port of its own.
 */
private[ui] final class SkewlessTab(ui: SparkUI) extends SparkUITab(ui, "skewless") {
  override val name = "Skewless"

  attachPage(new QueriesPage(this))
  attachPage(new QueryPage(this))

  def queries: Seq[QueryView] = NewsListener.queries(ui.store.store)

  /** Where the page of a query is. */
  def link(request: HttpServletRequest, query: QueryView): String =
    s"${UIUtils.prependBaseUri(request, basePath)}/$prefix/query/?id=${URLEncoder.encode(query.id, UTF_8)}"
}

object SkewlessTab extends Logging {

  /**
   * Puts the tab into a running application's UI, if it has one. Called by the plugin; costs a tab, never
   * more.
   */
  def attach(context: SparkContext): Unit = context.ui.foreach { ui =>
    try {
      val store = context.statusStore.store.asInstanceOf[ElementTrackingStore]
      context.addSparkListener(new NewsListener(store, live = true))
      ui.attachTab(new SkewlessTab(ui))
    } catch {
      case NonFatal(e) => logWarning("Spark's UI takes no tab of Skewless; all else goes on", e)
    }
  }
}

/** The tab in the history server, which finds this class by its name under META-INF/services. */
final class SkewlessHistoryPlugin extends AppHistoryServerPlugin {
  override def createListeners(conf: SparkConf, store: ElementTrackingStore): Seq[SparkListener] =
    Seq(new NewsListener(store, live = false))

  override def setupUI(ui: SparkUI): Unit = {
    val tab = new SkewlessTab(ui)
    if (tab.queries.nonEmpty) ui.attachTab(tab)
  }
}
