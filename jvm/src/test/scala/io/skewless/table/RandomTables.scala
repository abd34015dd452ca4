package io.skewless.table

import scala.util.Random

/**
 * Random tables for the suites, from a seed; hashes come from a small range where collisions and overlaps are
 * wanted.
 */
object RandomTables {

  /** Hashes that sit at the ends of the range, where sign and overflow mistakes show. */
  val EdgeHashes: Seq[Int] = Seq(Int.MinValue, Int.MinValue + 1, -1, 0, 1, Int.MaxValue - 1, Int.MaxValue)

  def entries(
      random: Random,
      size: Int,
      partitions: Int,
      splitShare: Double,
      hashRange: Int = 0
  ): Map[Int, Seq[Int]] = {
    def hash() = if (hashRange > 0) random.nextInt(hashRange) - hashRange / 2 else random.nextInt()
    Iterator
      .continually(hash())
      .distinct
      .take(size)
      .map(h => h -> targets(random, partitions, splitShare))
      .toMap
  }

  def table(
      random: Random,
      size: Int,
      partitions: Int,
      splitShare: Double = 0.3,
      hashRange: Int = 0,
      epoch: Long = 1
  ): Table =
    Table(partitions, entries(random, size, partitions, splitShare, hashRange), epoch)

  private def targets(random: Random, partitions: Int, splitShare: Double): Seq[Int] =
    if (partitions == 1 || random.nextDouble() >= splitShare) Seq(random.nextInt(partitions))
    else
      Iterator
        .continually(random.nextInt(partitions))
        .distinct
        .take(2 + random.nextInt(Math.min(partitions, 8) - 1))
        .toSeq
}
