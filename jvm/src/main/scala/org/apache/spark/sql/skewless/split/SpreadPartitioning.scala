// In Spark's package because it extends HashPartitioning, so that Spark's own exchange node takes it.
package org.apache.spark.sql.skewless.split

import io.skewless.table.{SharedTable, Side}
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.physical._

/**
 * The partitioning of rows that `SpreadExec` has spread. A key may sit in several partitions and a row be
 * there several times, so it satisfies no clustering and fits no other side of a join.
 */
private[skewless] class SpreadPartitioning(
    keys: Seq[Expression],
    n: Int,
    val shared: SharedTable,
    val side: Side
) extends HashPartitioning(keys, n) {

  /** Asked for in the map task, by the shuffle writer. */
  override def partitionIdExpression: Expression = SpreadTarget(SpreadCursor.ofTask())

  override def satisfies0(required: Distribution): Boolean = required match {
    case UnspecifiedDistribution => true
    case AllTuples => n == 1
    case _ => false
  }

  override def createShuffleSpec(distribution: ClusteredDistribution): ShuffleSpec = SpreadShuffleSpec(n)

  override def canEqual(other: Any): Boolean = other.isInstanceOf[SpreadPartitioning]

  override def equals(other: Any): Boolean = other match {
    case that: SpreadPartitioning => shared == that.shared && side == that.side && super.equals(that)
    case _ => false
  }

  override def hashCode: Int = 31 * super.hashCode + shared.hashCode

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(shared, side)

  override def copy(expressions: Seq[Expression], numPartitions: Int): HashPartitioning =
    if (numPartitions == n) new SpreadPartitioning(expressions, n, shared, side)
    else throw new IllegalStateException(s"a table for $n partitions says nothing of $numPartitions")

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): HashPartitioning =
    new SpreadPartitioning(newChildren, n, shared, side)

  override protected def stringArgs: Iterator[Any] =
    Iterator(keys, n, s"epoch ${shared.table.epoch}, ${shared.table.size} entries, $side side")
}

/** Fits nothing, and nothing can be made to fit it. */
private[skewless] case class SpreadShuffleSpec(numPartitions: Int) extends ShuffleSpec {
  override def isCompatibleWith(other: ShuffleSpec): Boolean = false
  override def canCreatePartitioning: Boolean = false
}
