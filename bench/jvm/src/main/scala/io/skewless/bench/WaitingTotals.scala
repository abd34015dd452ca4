package io.skewless.bench // a package of its own: the manifest of the first jar that has one speaks for it

import java.lang.management.ManagementFactory
import java.util.concurrent.locks.LockSupport

import org.apache.spark.sql.{DataFrame, Encoders, SparkSession}
import org.apache.spark.sql.streaming.{GroupState, GroupStateTimeout, OutputMode}

/**
 * The query of `bench/streams.py`: rows counted by key in `flatMapGroupsWithState`, with a service time per row.
 * In Scala because a Python function costs about as much processor time per key as the waits of many rows, and
 * the machine has two cores.
 */
object WaitingTotals {

  /**
   * (k, n): how often each key of this batch has come so far. `k` is the string column of `rows`.
   *
   * @param micros of each row
   * @param burn   whether they are spent on the processor; else the row waits
   */
  def totals(rows: DataFrame, micros: Double, burn: Boolean): DataFrame = {
    implicit val string = Encoders.STRING
    implicit val long = Encoders.scalaLong
    implicit val pair = Encoders.tuple(Encoders.STRING, Encoders.scalaLong)
    val count = (key: String, values: Iterator[String], state: GroupState[Long]) => {
      val seen = values.size
      if (burn) Burn.add(seen * micros) else Wait.add(seen * micros)
      val total = state.getOption.getOrElse(0L) + seen
      state.update(total)
      Iterator((key, total))
    }
    rows
      .select("k")
      .as[String]
      .groupByKey(identity)
      .flatMapGroupsWithState(OutputMode.Update(), GroupStateTimeout.NoTimeout())(count)
      .toDF("k", "n")
  }

  /** A parquet file of keys, one a row, as one file a micro-batch. */
  def source(session: SparkSession, folder: String): DataFrame =
    session.readStream.schema("k STRING").option("maxFilesPerTrigger", 1).parquet(folder)
}

/** Waits that are shorter than a timer can be are saved up, by thread, until they are worth a sleep. */
private object Wait {
  private val owed = ThreadLocal.withInitial[Array[Double]](() => Array(0.0))

  def add(micros: Double): Unit = {
    val debt = owed.get()
    debt(0) += micros
    if (debt(0) >= 2000) {
      val before = System.nanoTime()
      LockSupport.parkNanos((debt(0) * 1000).toLong)
      debt(0) -= (System.nanoTime() - before) / 1000.0
    }
  }
}

/**
 * Work that takes so many microseconds of the thread's own processor time: a slot that shares its core with
 * others does not get it done sooner.
 */
private object Burn {
  private val clock = ManagementFactory.getThreadMXBean
  private val owed = ThreadLocal.withInitial[Array[Double]](() => Array(0.0))
  @volatile var made = 0L // so that the work is not optimised away

  def add(micros: Double): Unit = {
    val debt = owed.get()
    debt(0) += micros
    if (debt(0) >= 200) {
      val before = clock.getCurrentThreadCpuTime
      val until = before + (debt(0) * 1000).toLong
      var (x, now) = (before | 1L, before)
      while (now < until) {
        var i = 0
        while (i < 1000) { x ^= x << 13; x ^= x >>> 7; x ^= x << 17; i += 1 }
        now = clock.getCurrentThreadCpuTime
      }
      made = x
      debt(0) -= (now - before) / 1000.0
    }
  }
}
