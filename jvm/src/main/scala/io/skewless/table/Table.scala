package io.skewless.table

import java.util.Arrays

import io.skewless.SkewlessException

/**
 * The routing table: key hash -> one partition (a move) or several (a split); a hash without an entry goes to
 * hash mod n.
 *
 * Immutable; travels inside plans and tasks. Its bytes are those of `table.py` (`TableCodec`), held together
 * by the vectors in `tests/vectors/`. The arrays are sorted by hash, which makes equal tables equal to the
 * byte; rows are looked up in `probe`.
 *
 * @param splitOffsets `splitTargets(splitOffsets(i) until splitOffsets(i + 1))` are the targets of
 *                     `splitHashes(i)`
 * @param splitRows    the rows of their grid, see `Split`: as many as targets where nothing but a list was
 *   given
 */
final class Table private (
    val epoch: Long,
    val partitions: Int,
    private[skewless] val moveHashes: Array[Int],
    private[skewless] val moveTargets: Array[Int],
    private[skewless] val splitHashes: Array[Int],
    private[skewless] val splitOffsets: Array[Int],
    private[skewless] val splitTargets: Array[Int],
    private[skewless] val splitRows: Array[Int]
) extends Serializable {
  import Probe.{Absent, SplitBase}
  import Table.{create, slot}

  def size: Int = moveHashes.length + splitHashes.length
  def isEmpty: Boolean = size == 0
  def splits: Int = splitHashes.length
  def hasSplits: Boolean = splits > 0

  /** Whether a split has more than one column, which only the rows of a join can be spread by. */
  def hasGrids: Boolean =
    splitHashes.indices.exists(i => splitRows(i) != splitOffsets(i + 1) - splitOffsets(i))

  /**
   * What each JVM builds on first use, and a task takes once: reading a lazy value for every row would cost.
   */
  @transient lazy val probe: Probe = Probe(moveHashes, moveTargets, splitHashes)

  /** What the table says of a key hash; see `Probe.find`. */
  def find(hash: Int): Int = probe.find(hash)

  /** The partition of a row of a split key; `code` is what `find` gave. See `slot` for the choice. */
  def spread(code: Int, hash: Int, mapPartition: Int, mappers: Int, content: Int, byContent: Boolean): Int = {
    val index = SplitBase - code
    val first = splitOffsets(index)
    splitTargets(
      first + slot(hash, mapPartition, mappers, splitOffsets(index + 1) - first, content, byContent)
    )
  }

  /** The partition of a key hash, for tables without splits. */
  def route(hash: Int): Int = {
    val code = find(hash)
    if (code >= 0) code
    else if (code == Absent) Math.floorMod(hash, partitions)
    else
      throw SkewlessException.table(
        s"key hash $hash is split over several partitions, so it has no single one. Route it with its map " +
          "partition instead."
      )
  }

  /** Every partition that rows with this hash may reach. */
  def targets(hash: Int): Array[Int] = {
    val code = find(hash)
    if (code >= 0) Array(code)
    else if (code == Absent) Array(Math.floorMod(hash, partitions))
    else splitTargets.slice(splitOffsets(SplitBase - code), splitOffsets(SplitBase - code + 1))
  }

  /** Where the rows with this hash go, by side. */
  def split(hash: Int): Split = {
    val code = find(hash)
    if (code >= 0) Split.one(code)
    else if (code == Absent) Split.one(Math.floorMod(hash, partitions))
    else splitAt(SplitBase - code)
  }

  def splitAt(index: Int): Split =
    Split(splitTargets.slice(splitOffsets(index), splitOffsets(index + 1)).toSeq, splitRows(index))

  /** The splits by hash, in order of hash. */
  def splitGrids: Seq[(Int, Split)] = splitHashes.indices.map(i => splitHashes(i) -> splitAt(i))

  /** All entries as (hash, targets), in order of hash. */
  def entries: Seq[(Int, Array[Int])] =
    (moveHashes ++ splitHashes).sorted.toSeq.map(hash => hash -> targets(hash))

  def withEpoch(newEpoch: Long): Table =
    create(newEpoch, partitions, moveHashes, moveTargets, splitHashes, splitOffsets, splitTargets, splitRows)

  def sameRoutes(other: Table): Boolean =
    partitions == other.partitions && Arrays.equals(moveHashes, other.moveHashes) &&
      Arrays.equals(moveTargets, other.moveTargets) && Arrays.equals(splitHashes, other.splitHashes) &&
      Arrays.equals(splitOffsets, other.splitOffsets) && Arrays.equals(splitTargets, other.splitTargets) &&
      Arrays.equals(splitRows, other.splitRows)

  override def equals(other: Any): Boolean = other match {
    case that: Table => (this eq that) || epoch == that.epoch && sameRoutes(that)
    case _ => false
  }

  override def hashCode: Int =
    31 * (31 * (31 * epoch.hashCode + partitions) + Arrays.hashCode(moveHashes)) + Arrays.hashCode(
      moveTargets
    )

  override def toString: String =
    s"Table(partitions=$partitions, epoch=$epoch, moves=${moveHashes.length}, splits=${splitHashes.length})"
}

object Table {
  val MaxPartitions: Int = 1 << 24
  private val Scatter = Probe.Scatter

  def empty(partitions: Int): Table = Table(partitions, Map.empty[Int, Seq[Int]])

  /** A table from hash -> targets: one target is a move, several a split whose order counts. */
  def apply(partitions: Int, entries: Map[Int, Seq[Int]], epoch: Long = 0): Table =
    of(partitions, entries.map { case (hash, targets) => hash -> Split(targets, targets.length) }, epoch)

  /** A table from hash -> grid of targets: a grid of one is a move. */
  def of(partitions: Int, entries: Map[Int, Split], epoch: Long = 0): Table = {
    entries.foreach { case (hash, split) =>
      if (split.targets.isEmpty)
        throw SkewlessException.table(
          s"key hash $hash has an empty target list. Give each entry at least one target."
        )
    }
    val (moves, splits) = entries.toArray.sortBy(_._1).partition(_._2.targets.length == 1)
    create(
      epoch,
      partitions,
      moves.map(_._1),
      moves.map(_._2.targets.head),
      splits.map(_._1),
      splits.scanLeft(0)(_ + _._2.targets.length),
      splits.flatMap(_._2.targets),
      splits.map(_._2.rows)
    )
  }

  /**
   * The one way to make a table: every rule is checked here, whether the arrays come from a user, a plan or a
   * file.
   */
  private[skewless] def create(
      epoch: Long,
      partitions: Int,
      moveHashes: Array[Int],
      moveTargets: Array[Int],
      splitHashes: Array[Int],
      splitOffsets: Array[Int],
      splitTargets: Array[Int],
      splitRows: Array[Int]
  ): Table = {
    def refuse(message: String) = throw SkewlessException.table(message)
    if (partitions < 1 || partitions > MaxPartitions)
      refuse(s"$partitions partitions: a shuffle has 1 to $MaxPartitions. Give the shuffle's own number.")
    if (epoch < 0) refuse(s"epoch $epoch is not a count. Epochs start at 0 and are given out by publish.")
    ascending(moveHashes, refuse)
    ascending(splitHashes, refuse)
    splitHashes.find(Arrays.binarySearch(moveHashes, _) >= 0).foreach(duplicate(_, refuse))
    (moveTargets.iterator ++ splitTargets.iterator).find(t => t < 0 || t >= partitions).foreach { t =>
      refuse(s"target $t is not a partition: there are $partitions, numbered from 0. Correct the target.")
    }
    splitHashes.indices.foreach { i =>
      val targets = splitTargets.slice(splitOffsets(i), splitOffsets(i + 1))
      if (targets.length < 2)
        refuse(
          s"key hash ${splitHashes(i)} has an empty target list, or lists do not add up. Give each entry " +
            "at least one target."
        )
      if (targets.distinct.length != targets.length)
        refuse(s"the split of key hash ${splitHashes(i)} lists one target twice. List each target once.")
      if (splitRows(i) < 1 || targets.length % splitRows(i) != 0)
        refuse(
          s"${splitRows(i)} rows do not divide the ${targets.length} targets of key hash " +
            s"${splitHashes(i)}: " +
            "the grid would have holes. Give each row as many targets."
        )
    }
    new Table(epoch, partitions, moveHashes, moveTargets, splitHashes, splitOffsets, splitTargets, splitRows)
  }

  private def ascending(hashes: Array[Int], refuse: String => Nothing): Unit = {
    var i = 1
    while (i < hashes.length) {
      if (hashes(i) == hashes(i - 1)) duplicate(hashes(i), refuse)
      if (hashes(i) < hashes(i - 1))
        refuse("the entries are not in order of key hash. The bytes were not written by Skewless.")
      i += 1
    }
  }

  private def duplicate(hash: Int, refuse: String => Nothing): Nothing =
    refuse(s"key hash $hash has two entries. Give each key hash one entry.")

  /**
   * Which of its `width` targets a row of a split key takes: a function of key, map partition and content
   * alone, so that a retried task writes every row where the first attempt did. With at least as many mappers
   * as targets the mappers take turns; with fewer, the row's content decides where it may (`byContent`).
   */
  def slot(hash: Int, mapPartition: Int, mappers: Int, width: Int, content: Int, byContent: Boolean): Int =
    if (!byContent || mappers >= width) (((mix(hash) & Int.MaxValue).toLong + mapPartition) % width).toInt
    else (mix(hash ^ mix(content + Scatter * (mapPartition + 1))) & Int.MaxValue) % width

  /** Murmur3's 32-bit finaliser: every input bit reaches every output bit. */
  private def mix(value: Int): Int = {
    var x = value
    x = (x ^ (x >>> 16)) * 0x85ebca6b
    x = (x ^ (x >>> 13)) * 0xc2b2ae35
    x ^ (x >>> 16)
  }
}
