package org.apache.spark.sql.skewless.ui

import java.util.Locale

import scala.xml.{Elem, Node}

/**
 * Small plots of one query as inline SVG, which needs no script: all share their x axis, batch by batch, and
 * mark its swaps.
 */
private[ui] final class Plots(batches: Seq[BatchView], swaps: Seq[SwapView]) {
  import Plots._

  private val (first, last) = (batches.head.batch, batches.last.batch)

  /** The batches that had rows. */
  val busy: Seq[BatchView] = batches.filter(_.rows > 0)

  /** Loads by partition, darker red for more than the mean; of many partitions the heaviest of a few. */
  def heat: Node = {
    val partitions = batches.map(_.loads.size).max.max(1)
    val perRow = (partitions + MostRows - 1) / MostRows
    val tall = (160.0 / ((partitions + perRow - 1) / perRow)).max(4).min(22)
    val cells = for {
      batch <- busy
      (loads, row) <- batch.loads.grouped(perRow).zipWithIndex
    } yield {
      val (heaviest, from) = (loads.max, row * perRow)
      <rect x={px(x(batch.batch))} y={px(Top + row * tall)} width={px(wide)}
        height={px(tall)} fill={shade(heaviest)}>
        <title>{f"batch ${batch.batch}, partition $from: $heaviest%.2f of the mean"}</title>
      </rect>
    }
    val height = tall * ((partitions + perRow - 1) / perRow)
    val step = 1.max(partitions / 8)
    val rows = (0 until partitions by step).map { p =>
      label(Left - 6, Top + (p / perRow + 0.5) * tall + 4, p.toString, "end")
    }
    svg(cells ++ rows, height)
  }

  /** One curve a name, from zero up. */
  def curves(lines: Seq[(String, Seq[(Long, Double)])]): Node = {
    val most = lines.flatMap(_._2).map(_._2).maxOption.filter(_ > 0).getOrElse(1.0)
    def y(value: Double) = Top + Tall * (1 - value / most)
    val paths = lines.zip(Colours).map { case ((name, points), colour) =>
      val corners = points.map { case (batch, value) => s"${px(middle(batch))},${px(y(value))}" }
      <polyline points={corners.mkString(" ")} fill="none" stroke={colour} stroke-width="1.6">
        <title>{name}</title>
      </polyline>
    }
    val names = lines.map(_._1).zip(Colours).zipWithIndex.map { case ((name, colour), i) =>
      <text x={px(Left + 8 + 90 * i)} y="11" font-size="11" fill={colour}>{name}</text>
    }
    val marks = Seq(0.0, most / 2, most).flatMap { value =>
      Seq(
        <line x1={px(Left)} x2={px(Width - Right)} y1={px(y(value))} y2={px(y(value))} stroke="#bbb"/>,
        label(Left - 6, y(value) + 4, number(value), "end")
      )
    }
    svg(marks ++ paths ++ names, Tall)
  }

  /** The left edge of a batch's column. */
  private def x(batch: Long): Double = Left + (batch - first) * wide
  private def middle(batch: Long): Double = x(batch) + wide / 2
  private def wide: Double = (Width - Left - Right) / (last - first + 1)

  private def svg(body: Seq[Node], height: Double): Elem = {
    val whole = px(Top + height + 34)
    <svg viewBox={s"0 0 $Width $whole"} width={Width.toString} height={whole}
      style="max-width: 100%; background: #fff" role="img">{body}{axis(height)}</svg>
  }

  /** Batch numbers with the time of their commit below, and the swaps. */
  private def axis(height: Double): Seq[Node] = {
    val step = 1.max(((last - first + 1) / 10).toInt)
    val labels = batches.filter(batch => (batch.batch - first) % step == 0).flatMap { batch =>
      val at = middle(batch.batch)
      Seq(
        label(at, Top + height + 14, batch.batch.toString, "middle"),
        label(at, Top + height + 28, Pages.time(batch.at), "middle")
      )
    }
    val marks = swaps.filter(swap => swap.batch >= first && swap.batch <= last).map { swap =>
      <line x1={px(x(swap.batch))} x2={px(x(swap.batch))} y1={px(Top)} y2={px(Top + height)} stroke="#222"
        stroke-dasharray="3 3"><title>{s"epoch ${swap.epoch}: ${swap.what}"}</title></line>
    }
    labels ++ marks
  }

  private def label(x: Double, y: Double, words: String, anchor: String): Node =
    <text x={px(x)} y={px(y)} font-size="11" fill="#555" text-anchor={anchor}>{words}</text>
}

private[ui] object Plots {
  val MostColumns = 100
  private val MostRows = 32
  private val Width = 1000
  private val Left = 70.0
  private val Right = 12.0
  private val Top = 16.0
  private val Tall = 110.0
  private val Colours = Seq("#4477AA", "#EE6677")

  /** From below the mean through the mean to twice the mean and more: the report's colours. */
  private val Heat = Seq(
    "#2166ac",
    "#4393c3",
    "#74add1",
    "#abd9e9",
    "#dcecf4",
    "#f4f4f4",
    "#fde3d0",
    "#fdbb84",
    "#f46d43",
    "#d73027",
    "#a50026"
  )

  private def shade(load: Double): String =
    Heat((load * (Heat.size - 1) / 2).round.toInt.max(0).min(Heat.size - 1))

  private def px(value: Double): String = String.format(Locale.ROOT, "%.1f", value)
  private def number(value: Double): String = if (value >= 100) f"$value%.0f" else f"$value%.2f"
}
