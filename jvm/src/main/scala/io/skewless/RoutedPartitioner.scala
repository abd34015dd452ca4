package io.skewless

import io.skewless.table.Table
import org.apache.spark.Partitioner

/**
 * A partitioner for RDDs that routes by a table and falls back to what Spark's `HashPartitioner` does: the
 * key hash is `key.hashCode`, null hashes to 0. Equal when its table is equal, so two RDDs routed alike join
 * without another shuffle.
 *
 * A partitioner is a promise that a key sits in one partition, on which Spark drops shuffles; a table with
 * splits would break it silently and is refused.
 */
final class RoutedPartitioner(val table: Table) extends Partitioner {
  if (table.hasSplits)
    throw SkewlessException.table(
      "a table with splits cannot partition an RDD: Spark takes a partitioner as a promise that a key sits " +
        "in one partition. " +
        "Use moves only, or skewless.repartition on a DataFrame."
    )

  override def numPartitions: Int = table.partitions

  override def getPartition(key: Any): Int = table.route(if (key == null) 0 else key.hashCode)

  override def equals(other: Any): Boolean = other match {
    case that: RoutedPartitioner => that.table == table
    case _ => false
  }

  override def hashCode: Int = table.hashCode
}
