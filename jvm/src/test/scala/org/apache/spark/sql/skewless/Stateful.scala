package org.apache.spark.sql.skewless

import java.sql.Timestamp
import java.time.Duration

import org.apache.spark.sql.{DataFrame, Encoder, Encoders}
import org.apache.spark.sql.functions.{col, lit}
import org.apache.spark.sql.functions.coalesce
import org.apache.spark.sql.streaming._

/** Queries with user code over state, for the suites: the JVM forms of arbitrary state. */
object Stateful {
  private type In = (String, Long, Timestamp)
  private type Out = (String, Long, String)
  private implicit val in: Encoder[In] =
    Encoders.tuple(Encoders.STRING, Encoders.scalaLong, Encoders.TIMESTAMP)
  private implicit val out: Encoder[Out] =
    Encoders.tuple(Encoders.STRING, Encoders.scalaLong, Encoders.STRING)
  private implicit val text: Encoder[String] = Encoders.STRING
  private implicit val number: Encoder[Long] = Encoders.scalaLong

  private def byKey(df: DataFrame) =
    df.select(coalesce(col("k"), lit("none")).as("_1"), col("v").as("_2"), col("t").as("_3"))
      .as[In]
      .groupByKey(_._1)

  def totals(df: DataFrame): DataFrame = byKey(df)
    .flatMapGroupsWithState(OutputMode.Update(), GroupStateTimeout.NoTimeout()) {
      (k: String, rows: Iterator[In], state: GroupState[Long]) =>
        val total = state.getOption.getOrElse(0L) + rows.map(_._2).sum
        state.update(total)
        Iterator((k, total, ""))
    }
    .toDF()

  /** A count that a time-out reports and removes. */
  def timeouts(df: DataFrame): DataFrame = byKey(df)
    .flatMapGroupsWithState(OutputMode.Append(), GroupStateTimeout.EventTimeTimeout()) {
      (k: String, rows: Iterator[In], state: GroupState[Long]) =>
        if (state.hasTimedOut) {
          val total = state.get
          state.remove()
          Iterator((k, total, "timed out"))
        } else {
          val all = rows.toSeq
          state.update(state.getOption.getOrElse(0L) + all.size)
          state.setTimeoutTimestamp(Math.max(all.map(_._3.getTime).max, state.getCurrentWatermarkMs()) + 5000)
          Iterator.empty
        }
    }
    .toDF()

  def variables(df: DataFrame): DataFrame =
    byKey(df).transformWithState(new Variables, TimeMode.None(), OutputMode.Update()).toDF()

  def timers(df: DataFrame): DataFrame =
    byKey(df).transformWithState(new Timers, TimeMode.EventTime(), OutputMode.Update()).toDF()

  /**
   * A value, a list and a map that live as long as given, so that Spark keeps an index of expiries beside
   * each.
   */
  def expiring(df: DataFrame, life: Duration): DataFrame =
    byKey(df)
      .transformWithState(new Variables(TTLConfig(life)), TimeMode.ProcessingTime(), OutputMode.Update())
      .toDF()

  private class Variables(life: TTLConfig = TTLConfig.NONE) extends StatefulProcessor[String, In, Out] {
    @transient private var count: ValueState[Long] = _
    @transient private var seen: ListState[Long] = _
    @transient private var byDigit: MapState[Long, Long] = _

    override def init(mode: OutputMode, time: TimeMode): Unit = {
      count = getHandle.getValueState[Long]("count", life)
      seen = getHandle.getListState[Long]("seen", life)
      byDigit = getHandle.getMapState[Long, Long]("byDigit", life)
    }

    override def handleInputRows(k: String, rows: Iterator[In], timers: TimerValues): Iterator[Out] = {
      val values = rows.map(_._2).toSeq.sorted
      count.update(count.get() + values.size)
      values.foreach { v =>
        seen.appendValue(v)
        byDigit.updateValue(v % 10, (if (byDigit.containsKey(v % 10)) byDigit.getValue(v % 10) else 0L) + v)
      }
      Iterator(
        (
          k,
          count.get(),
          seen.get().toSeq.sorted.mkString(",") + byDigit.iterator().toSeq.sorted.mkString(";")
        )
      )
    }
  }

  private class Timers extends StatefulProcessor[String, In, Out] {
    @transient private var count: ValueState[Long] = _

    override def init(mode: OutputMode, time: TimeMode): Unit = count =
      getHandle.getValueState[Long]("count", TTLConfig.NONE)

    override def handleInputRows(k: String, rows: Iterator[In], timers: TimerValues): Iterator[Out] = {
      val all = rows.toSeq
      count.update(count.get() + all.size)
      getHandle.registerTimer(Math.max(all.map(_._3.getTime).max, timers.getCurrentWatermarkInMs()) + 5000)
      Iterator((k, count.get(), "rows"))
    }

    override def handleExpiredTimer(
        k: String,
        timers: TimerValues,
        expired: ExpiredTimerInfo
    ): Iterator[Out] = {
      val total = count.get()
      if (getHandle.listTimers().isEmpty) count.clear()
      Iterator((k, total, s"timer ${expired.getExpiryTimeInMs()}"))
    }
  }
}
