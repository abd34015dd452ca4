package org.apache.spark.sql.skewless.ui

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.{JsonMethods, Serialization}

/** A key hash and its share of a batch's rows. */
private[ui] final case class HotKey(hash: Int, share: Double)

/**
 * One batch, as a loop tells it.
 *
 * @param at    when it was committed, in milliseconds of the epoch; 0 if nobody knows
 * @param loads what each partition cost, as a share of the mean
 */
private[ui] final case class BatchView(
    batch: Long,
    at: Long,
    epoch: Long,
    millis: Long,
    predictedMs: Option[Double],
    rows: Long,
    imbalance: Double,
    slots: Int,
    entries: Int,
    loads: Seq[Double],
    hot: Seq[HotKey]
)

/** One swap of tables, as a loop tells it; `what` says what was moved or split, `gain` what it brought. */
private[ui] final case class SwapView(
    batch: Long,
    epoch: Long,
    what: String,
    bytes: Option[Long],
    pauseMs: Option[Double],
    before: Option[Double],
    predicted: Option[Double],
    realised: Option[Double],
    gain: String,
    why: String
)

/** One query: what the tab shows of it. In the news, only what is new of its batches and swaps. */
private[ui] final case class QueryView(
    id: String,
    name: String,
    running: Boolean,
    loop: String,
    epoch: Long,
    entries: Int,
    why: String,
    errors: Map[String, Long],
    batches: Seq[BatchView],
    swaps: Seq[SwapView]
) {
  import QueryView._

  def title: String = if (name.isEmpty) id else name

  /** The last batch that had rows. */
  def lastBatch: Option[BatchView] = batches.reverseIterator.find(_.rows > 0)

  /** With what came later: batches and swaps that are told again take the place of what was told before. */
  def and(later: QueryView): QueryView = later.copy(
    batches = merged(batches, later.batches)(_.batch).takeRight(KeptBatches),
    swaps = merged(swaps, later.swaps)(_.epoch).takeRight(KeptSwaps)
  )

  def json: String = Serialization.write(this)
}

private[ui] object QueryView {
  val KeptBatches = 200
  val KeptSwaps = 100
  private implicit val formats: Formats = DefaultFormats

  /** The queries that a loop has news of. */
  def read(news: String): Seq[QueryView] = JsonMethods.parse(news).extract[Seq[QueryView]]

  def one(json: String): QueryView = JsonMethods.parse(json).extract[QueryView]

  private def merged[T](before: Seq[T], later: Seq[T])(number: T => Long): Seq[T] =
    (before ++ later).map(item => number(item) -> item).toMap.toSeq.sortBy(_._1).map(_._2)
}
