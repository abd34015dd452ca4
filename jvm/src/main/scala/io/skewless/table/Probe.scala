package io.skewless.table

/**
 * A table made for looking up: open addressing over one int array of (hash, code) pairs, at most half full.
 * Asked for every row of a routed shuffle; allocates nothing.
 *
 * A hash's home is the top bits of hash times an odd constant; collisions go to the next pair. In front
 * stands a bit per home of a finer grid, small enough to stay in the processor's nearest caches: nearly all
 * rows are cold, and most of them end there.
 */
final class Probe private (pairs: Array[Int], shift: Int, filter: Array[Long], filterShift: Int) {
  import Probe._

  /** A target (>= 0), `Absent`, or a split as `SplitBase - index`. */
  def find(hash: Int): Int = {
    val scattered = hash * Scatter
    val bit = scattered >>> filterShift
    if ((filter(bit >>> 6) & (1L << bit)) == 0) Absent else search(hash, (scattered >>> shift) << 1)
  }

  private def search(hash: Int, home: Int): Int = {
    val mask = pairs.length - 1
    var at = home
    while (true) {
      val code = pairs(at + 1)
      if (code == Absent || pairs(at) == hash) return code
      at = (at + 2) & mask
    }
    Absent
  }
}

object Probe {
  val Absent: Int = -1
  val SplitBase: Int = -2
  private[skewless] val Scatter = 0x9e3779b9
  private val BitsAnEntry = 8
  private val MinFilterBits = 64
  private val MaxFilterBits = 1 << 24

  def apply(moveHashes: Array[Int], moveTargets: Array[Int], splitHashes: Array[Int]): Probe = {
    val size = moveHashes.length + splitHashes.length
    val pairs = Array.fill(2 * powerOfTwo(Math.max(2, 2 * size)))(Absent)
    val shift = shiftFor(pairs.length / 2)
    val filterBits = powerOfTwo((BitsAnEntry * size.toLong).max(MinFilterBits).min(MaxFilterBits).toInt)
    val filter = new Array[Long](filterBits / 64)
    val filterShift = shiftFor(filterBits)
    def put(hash: Int, code: Int): Unit = {
      var at = (hash * Scatter >>> shift) << 1
      while (pairs(at + 1) != Absent) at = (at + 2) & (pairs.length - 1)
      pairs(at) = hash
      pairs(at + 1) = code
      val bit = hash * Scatter >>> filterShift
      filter(bit >>> 6) |= 1L << bit
    }
    moveHashes.indices.foreach(i => put(moveHashes(i), moveTargets(i)))
    splitHashes.indices.foreach(i => put(splitHashes(i), SplitBase - i))
    new Probe(pairs, shift, filter, filterShift)
  }

  private def powerOfTwo(atLeast: Int): Int = Integer.highestOneBit(Math.max(1, atLeast - 1)) << 1

  /** How far to shift a 32-bit product so that `cells` (a power of two, at least 2) cells remain. */
  private def shiftFor(cells: Int): Int = Integer.numberOfLeadingZeros(cells - 1)
}
