// In Spark's package because it extends HashPartitioning and answers the planner's private questions about
// it.
package org.apache.spark.sql.skewless.route

import io.skewless.SkewlessException
import io.skewless.observe.KeyCounts
import io.skewless.table.{SharedTable, Table}
import org.apache.spark.sql.catalyst.expressions.{Expression, Literal, Pmod}
import org.apache.spark.sql.catalyst.plans.physical._

/**
 * Spark's hash partitioning, with a table in front. Being a `HashPartitioning`, it keeps Spark's own exchange
 * node with all that hangs on it (serialized shuffle, metrics, checksums).
 *
 * What it tells the planner, who drops shuffles on the strength of it:
 *  - moves only: a key sits in one partition (true, so a `groupBy` on the key needs no other shuffle), and
 *    two sides of a join fit together only if both are routed by the same table;
 *  - no entries (it only counts keys): all that plain hashing claims;
 *  - with a split: a key may sit in several partitions, so it satisfies no clustering and fits nothing.
 *
 * Equality covers the table: otherwise plan rewrites would take a routed exchange for a plain one, or merge
 * two different ones.
 *
 * @param counts  where the map tasks count their rows by key, for the loop; no part of what the partitioning
 *                is
 * @param content a hash of the row that may decide the target of a split key, or None where content may
 *                change between attempts
 */
class RoutedPartitioning(
    keys: Seq[Expression],
    n: Int,
    val shared: SharedTable,
    val content: Option[Expression],
    counts: Option[KeyCounts] = None
) extends HashPartitioning(keys, n) {

  def table: Table = shared.table

  override def partitionIdExpression: Expression = {
    val sampler = counts.flatMap(c => Option(c.sampler()))
    val route = Route(RoutedPartitioning.keyHash(super.partitionIdExpression, n), content, table, sampler)
    val values = sampler
      .flatMap(s => Option(s.values))
      .filter(_ => keys.forall(_.deterministic)) // they are evaluated again
    values.fold[Expression](route)(KeySamplingRoute(route, keys, _))
  }

  override def satisfies0(required: Distribution): Boolean = required match {
    case _ if table.isEmpty => super.satisfies0(required)
    case _: StatefulOpClusteredDistribution => false // state lies where plain hashing put it
    case _ if !table.hasSplits => super.satisfies0(required)
    case UnspecifiedDistribution => true
    case AllTuples => n == 1
    case _ => false
  }

  override def createShuffleSpec(distribution: ClusteredDistribution): ShuffleSpec =
    if (table.isEmpty) super.createShuffleSpec(distribution) else RoutedShuffleSpec(this, distribution)

  override def canEqual(other: Any): Boolean = other.isInstanceOf[RoutedPartitioning]

  override def equals(other: Any): Boolean = other match {
    case that: RoutedPartitioning => shared == that.shared && content == that.content && super.equals(that)
    case _ => false
  }

  override def hashCode: Int = 31 * super.hashCode + shared.hashCode

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(shared, content, counts)

  /**
   * Spark copies a partitioning when adaptive execution has coalesced it and its keys are renamed; the table
   * must come along.
   */
  override def copy(expressions: Seq[Expression], numPartitions: Int): HashPartitioning =
    if (numPartitions == n) new RoutedPartitioning(expressions, n, shared, content, counts)
    else throw new IllegalStateException(s"a table for $n partitions says nothing of $numPartitions")

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): HashPartitioning =
    new RoutedPartitioning(newChildren, n, shared, content, counts)

  override protected def stringArgs: Iterator[Any] =
    Iterator(keys, n, s"epoch ${table.epoch}, ${table.size} entries")
}

private[skewless] object RoutedPartitioning {

  /** The key hash within what Spark computes as a partition id. */
  def keyHash(partitionId: Expression, n: Int): Expression = partitionId match {
    case Pmod(hash, Literal(`n`, _), _) => hash
    case other =>
      throw SkewlessException.version(
        s"this Spark computes partition ids as $other, which Skewless does not know. Use a Spark that this " +
          "release serves."
      )
  }
}

/**
 * Which other side of a join fits a routed one: a side routed by the same table, key by key, and no other.
 * `HashShuffleSpec` alone would call a plain hash exchange compatible, and the moved keys would silently lose
 * their partners.
 */
private[skewless] case class RoutedShuffleSpec(
    partitioning: RoutedPartitioning,
    distribution: ClusteredDistribution
) extends ShuffleSpec {
  private val byHash = HashShuffleSpec(partitioning, distribution)
  private val movesOnly = !partitioning.table.hasSplits

  override def isCompatibleWith(other: ShuffleSpec): Boolean = other match {
    case SinglePartitionShuffleSpec => numPartitions == 1
    case that: RoutedShuffleSpec =>
      movesOnly && partitioning.shared == that.partitioning.shared && byHash.isCompatibleWith(that.byHash)
    case ShuffleSpecCollection(specs) => specs.exists(isCompatibleWith)
    case _ => false
  }

  override def canCreatePartitioning: Boolean = movesOnly && byHash.canCreatePartitioning

  override def createPartitioning(clustering: Seq[Expression]): Partitioning =
    byHash.createPartitioning(clustering) match {
      case plain: HashPartitioning =>
        new RoutedPartitioning(plain.expressions, numPartitions, partitioning.shared, None)
      case other => throw new IllegalStateException(s"a hash exchange was asked for, Spark made $other")
    }

  override def numPartitions: Int = partitioning.numPartitions
}
