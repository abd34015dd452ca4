// In Spark's package because all that knows how Spark lays out state is.
package org.apache.spark.sql.skewless.state

import java.nio.ByteBuffer

import scala.collection.mutable

import io.skewless.table.{Left, Right, Side}
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.RocksDB

/**
 * What a column family holds of one side of a stream-stream join: how many rows each key has, or the rows,
 * each under its key and an index below that number. In state formats 1 and 2 a store of that name, in format
 * 3 a family.
 */
private[skewless] final case class JoinFamily(side: Side, isCounts: Boolean)

private[skewless] object JoinFamily {
  private val byName = Map(
    "left-keyToNumValues" -> JoinFamily(Left, isCounts = true),
    "left-keyWithIndexToValue" -> JoinFamily(Left, isCounts = false),
    "right-keyToNumValues" -> JoinFamily(Right, isCounts = true),
    "right-keyWithIndexToValue" -> JoinFamily(Right, isCounts = false)
  )

  def of(name: String): Option[JoinFamily] = byName.get(name)
}

/** Adds rows that enter a column family to those that it holds of the same key. */
private[skewless] trait Merge {
  def put(key: Array[Byte], value: Array[Byte]): Unit
}

private[skewless] object Merge {
  def of(family: StateFamily, encoding: String, usesFamilies: Boolean, store: RocksDB): Merge =
    family.join match {
      case Some(JoinFamily(_, true)) => new MergedCounts(family, encoding, store)
      case Some(JoinFamily(_, false)) => new MergedRows(family, encoding, usesFamilies, store)
      case None => throw new IllegalStateException(s"rows of ${family.name} cannot be merged")
    }
}

/** The number of a key's rows grows by those that enter. */
private final class MergedCounts(family: StateFamily, encoding: String, store: RocksDB) extends Merge {
  private val values = family.valueEncoder(encoding)

  override def put(key: Array[Byte], value: Array[Byte]): Unit =
    Option(store.get(key, family.name)) match {
      case None => store.put(key, value, family.name)
      case Some(known) =>
        val sum = values.decodeValue(known).getLong(0) + values.decodeValue(value).getLong(0)
        val row = values.decodeValue(known).copy()
        row.setLong(0, sum)
        store.put(key, values.encodeValue(row), family.name)
    }
}

/**
 * Each row that enters takes the next free index of its key. Spark looks for a key's rows below their number
 * only: with k rows there and m that enter, all free indices taken lie below k + m.
 */
private final class MergedRows(family: StateFamily, encoding: String, usesFamilies: Boolean, store: RocksDB)
    extends Merge {
  private val keys = family.keyEncoder(encoding, usesFamilies)
  private val indexAt = family.schema.keySchema.length - 1
  private val free = mutable.HashMap.empty[ByteBuffer, Long]

  override def put(key: Array[Byte], value: Array[Byte]): Unit = {
    val row = keys.decodeKey(key).copy()
    val of = { row.setLong(indexAt, 0); ByteBuffer.wrap(row.getBytes.clone()) }
    var index = free.getOrElse(of, firstFree(row))
    while (taken(row, index)) index += 1
    store.put(encoded(row, index), value, family.name)
    free(of) = index + 1
  }

  /** Rows usually fill their indices without gaps: the end is found by doubling, then by halving. */
  private def firstFree(row: UnsafeRow): Long = {
    var above = 1L
    while (taken(row, above - 1)) above *= 2
    var (from, until) = (above / 2, above - 1) // all below `from` seemed taken, `until` is free
    while (from < until) {
      val middle = (from + until) / 2
      if (taken(row, middle)) from = middle + 1 else until = middle
    }
    until
  }

  private def taken(row: UnsafeRow, index: Long): Boolean =
    store.get(encoded(row, index), family.name) != null

  private def encoded(row: UnsafeRow, index: Long): Array[Byte] = {
    row.setLong(indexAt, index)
    keys.encodeKey(row)
  }
}
