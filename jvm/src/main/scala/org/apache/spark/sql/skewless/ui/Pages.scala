// In Spark's package because pages of Spark's UI are private to it.
package org.apache.spark.sql.skewless.ui

import java.time.{Instant, ZoneId}
import java.time.format.DateTimeFormatter

import scala.xml.{Node, NodeSeq}

import jakarta.servlet.http.HttpServletRequest
import org.apache.spark.ui.{UIUtils, WebUIPage}
import org.apache.spark.util.Utils

/** All queries, a line each. Text goes into XML nodes, which escape it. */
private[ui] final class QueriesPage(tab: SkewlessTab) extends WebUIPage("") {
  import Pages._

  override def render(request: HttpServletRequest): Seq[Node] = {
    val queries = tab.queries
    def page: Seq[Node] =
      if (queries.isEmpty)
        <p>No loop has told of a query yet. <code>skewless.balance(spark)</code> starts one.</p>
      else
        queries.map(_.loop).distinct.map(words => <p>{words}</p>) :+
          table(Heads, queries.map(line(request, _)))
    UIUtils.headerSparkPage(request, "Skewless", page, tab)
  }

  private val Heads = Seq(
    "Query",
    "State",
    "Epoch",
    "Entries",
    "Partitions",
    "Slots",
    "Imbalance",
    "Last batch",
    "Swaps",
    "What it does, or why it waits"
  )

  private def line(request: HttpServletRequest, query: QueryView): Seq[NodeSeq] = {
    val last = query.lastBatch
    Seq(
      <a href={tab.link(request, query)}>{query.title}</a>,
      text(state(query)),
      text(query.epoch.toString),
      text(query.entries.toString),
      text(last.fold("-")(_.loads.size.toString)),
      text(last.fold("-")(slots)),
      text(last.fold("-")(b => f"${b.imbalance}%.3f")),
      text(last.fold("-")(b => s"${b.batch}: ${UIUtils.formatDuration(b.millis)}")),
      text(query.swaps.size.toString),
      text(query.why)
    )
  }
}

/** One query: its story in plots and tables. */
private[ui] final class QueryPage(tab: SkewlessTab) extends WebUIPage("query") {
  import Pages._

  override def render(request: HttpServletRequest): Seq[Node] = {
    val id = Option(request.getParameter("id")).getOrElse("")
    val found = tab.queries.find(_.id == id)
    def page: Seq[Node] = found.fold[Seq[Node]](<p>Nothing is known of a query with this id.</p>)(story)
    UIUtils.headerSparkPage(request, found.fold("Skewless")(q => s"Skewless: ${q.title}"), page, tab)
  }

  private def story(query: QueryView): Seq[Node] =
    <p>Query {query.id}, {state(query)}; {query.loop}.</p> +:
      <p><strong>Now:</strong> {query.why}</p> +:
      (query.errors.toSeq.map { case (words, count) => <p>Error, {count} times: {words}</p> } ++
        (if (query.batches.isEmpty) Nil else plots(query)) ++ hotKeys(query) ++ swaps(query))

  private def plots(query: QueryView): Seq[Node] = {
    val plots = new Plots(query.batches.takeRight(Plots.MostColumns), query.swaps)
    <h4>Load of each partition, batch by batch</h4> +:
      <p>Blue: less than the batch's mean; white: the mean; red: twice it and more. Dashed: swaps.</p> +:
      plots.heat +:
      <h4>Imbalance: share of time that tasks lost against level ones</h4> +:
      plots.curves(Seq("imbalance" -> plots.busy.map(b => b.batch -> b.imbalance))) +:
      <h4>Batch time in milliseconds: real, and as the clock predicted it</h4> +:
      plots.curves(
        Seq(
          "real" -> plots.busy.map(b => b.batch -> b.millis.toDouble),
          "predicted" -> plots.busy.flatMap(b => b.predictedMs.map(b.batch -> _))
        )
      ) +:
      <h4>Entries of the table</h4> +:
      Seq(plots.curves(Seq("entries" -> query.batches.map(b => b.batch -> b.entries.toDouble))))
  }

  private def hotKeys(query: QueryView): Seq[Node] = query.lastBatch.toSeq.flatMap { last =>
    val rows = last.hot.map(key => Seq(text(key.hash.toString), text(f"${100 * key.share}%.1f %%")))
    <h4>{s"Hottest keys of batch ${last.batch}, on ${slots(last)} slots"}</h4> +:
      (if (rows.isEmpty) Seq(<p>None stands out.</p>) else Seq(table(Seq("Key hash", "Share of rows"), rows)))
  }

  private def swaps(query: QueryView): Seq[Node] =
    if (query.swaps.isEmpty) <h4>No swap yet</h4>
    else {
      val rows = query.swaps.reverse.map { swap =>
        val at = query.batches.find(_.batch == swap.batch).fold("-")(b => time(b.at))
        def shown(value: Option[Double], form: String) = value.fold("-")(form.format(_))
        Seq(
          swap.batch.toString,
          at,
          swap.epoch.toString,
          swap.what,
          swap.bytes.fold("-")(Utils.bytesToString(_)),
          shown(swap.pauseMs, "%.0f ms"),
          shown(swap.before, "%.3f"),
          shown(swap.predicted, "%.3f"),
          shown(swap.realised, "%.3f"),
          swap.gain,
          swap.why
        ).map(text)
      }
      <h4>Swaps and splits, the newest first</h4> ++ table(SwapHeads, rows)
    }

  private val SwapHeads = Seq(
    "Batch",
    "At",
    "Epoch",
    "What",
    "State moved",
    "Pause",
    "Imbalance before",
    "Predicted",
    "Realised",
    "Gain",
    "Why"
  )
}

private[ui] object Pages {
  private val clock = DateTimeFormatter.ofPattern("HH:mm:ss")

  def text(words: String): NodeSeq = scala.xml.Text(words)
  def state(query: QueryView): String = if (query.running) "running" else "ended"
  def slots(batch: BatchView): String = if (batch.slots == 0) "?" else batch.slots.toString

  /** In the time zone of the driver, or of the history server. */
  def time(at: Long): String =
    if (at == 0) "-" else clock.format(Instant.ofEpochMilli(at).atZone(ZoneId.systemDefault()))

  def table(heads: Seq[String], rows: Seq[Seq[NodeSeq]]): Node =
    <table class="table table-bordered table-sm table-striped">
      <thead><tr>{heads.map(head => <th>{head}</th>)}</tr></thead>
      <tbody>{rows.map(row => <tr>{row.map(cell => <td>{cell}</td>)}</tr>)}</tbody>
    </table>
}
