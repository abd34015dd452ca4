package io.skewless.bench

import java.util.concurrent.TimeUnit

import scala.util.Random

import io.skewless.table.{Probe, Table}
import org.openjdk.jmh.annotations._

/**
 * The table's probe, per row: `sbt 'benchJvm/Jmh/run'`. `plain` is hash mod n as Spark computes it, for
 * comparison; rows are random, so nearly all of them are cold; `hits` are rows that all have an entry.
 */
@State(Scope.Thread)
@BenchmarkMode(Array(Mode.AverageTime))
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(2)
class ProbeBench {
  @Param(Array("0", "3000", "50000"))
  var entries: Int = _

  private val Rows = 1 << 16
  private var probe: Probe = _
  private var rows: Array[Int] = _
  private var hot: Array[Int] = _
  private var at = 0

  @Setup def setUp(): Unit = {
    val random = new Random(7)
    val hashes = Iterator.continually(random.nextInt()).distinct.take(entries).toArray
    probe = Table(64, hashes.map(h => h -> Seq(random.nextInt(64))).toMap).probe
    rows = Array.fill(Rows)(random.nextInt())
    hot = if (entries == 0) rows else Array.fill(Rows)(hashes(random.nextInt(entries)))
  }

  private def next(): Int = { at = (at + 1) & (Rows - 1); at }

  @Benchmark def plain(): Int = Math.floorMod(rows(next()), 64)
  @Benchmark def cold(): Int = route(rows(next()))
  @Benchmark def hits(): Int = route(hot(next()))

  private def route(hash: Int): Int = {
    val code = probe.find(hash)
    if (code >= 0) code else Math.floorMod(hash, 64)
  }
}
