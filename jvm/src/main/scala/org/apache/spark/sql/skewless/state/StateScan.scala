// In Spark's package because Spark's wrapper of RocksDB is private.
package org.apache.spark.sql.skewless.state

import java.lang.reflect.Field
import java.util.Arrays

import scala.util.Try

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBStateStoreProvider}
import org.rocksdb.{ReadOptions, RocksDB => NativeRocksDB, RocksIterator}

/**
 * Reads a loaded store key by key. An export asks for the keys of all rows and the values of few, so values
 * are fetched on demand, and the rows that pass leave the block cache alone: the batch that follows finds it
 * as it was.
 *
 * Spark's own iterator copies every value. It serves where the database behind it cannot be had, or where
 * rows carry checksums.
 */
private[sql] object StateScan {

  /** Calls `row` with each key of a column family, and with what gives that row's value if called at once. */
  def foreach(store: RocksDB, family: String, usesFamilies: Boolean)(
      row: (Array[Byte], () => Array[Byte]) => Unit
  ): Unit =
    native(store).filterNot(_ => store.conf.rowChecksumEnabled) match {
      case Some(db) => byKey(db, prefix(store, family, usesFamilies), row)
      case None => store.iterator(family).foreach(pair => row(pair.key, () => pair.value))
    }

  private val field: Option[Field] = Try {
    val f = classOf[RocksDB].getDeclaredField("db"); f.setAccessible(true); f
  }.toOption

  private def native(store: RocksDB): Option[NativeRocksDB] =
    field.map(_.get(store)).collect { case db: NativeRocksDB => db }

  /**
   * What a store that is open holds, about: on disk, and written but not yet on disk. -1 if it does not tell.
   */
  def liveBytes(store: RocksDB): Long = native(store).fold(-1L) { db =>
    Try(
      db.getLongProperty("rocksdb.estimate-live-data-size") + db.getLongProperty(
        "rocksdb.cur-size-all-mem-tables"
      )
    )
      .getOrElse(-1L)
  }

  /** A column family is a prefix of its keys; asking for one that exists tells its number. */
  private def prefix(store: RocksDB, family: String, usesFamilies: Boolean): Array[Byte] =
    if (!usesFamilies) Array.emptyByteArray
    else
      RocksDBStateStoreProvider.getColumnFamilyIdAsBytes(
        store.createColFamilyIfAbsent(family, isInternal = false)
      )

  /** One read of this size instead of one for each block: all of them are passed. */
  private val ReadAheadBytes = 1L << 20

  private def byKey(
      db: NativeRocksDB,
      prefix: Array[Byte],
      row: (Array[Byte], () => Array[Byte]) => Unit
  ): Unit = {
    val options = new ReadOptions().setFillCache(false).setReadaheadSize(ReadAheadBytes)
    val iterator = db.newIterator(options)
    try scan(iterator, prefix, row)
    finally {
      iterator.close()
      options.close()
    }
  }

  private def scan(
      iterator: RocksIterator,
      prefix: Array[Byte],
      row: (Array[Byte], () => Array[Byte]) => Unit
  ): Unit = {
    val (value, start, task) = (() => iterator.value(), prefix.length, TaskContext.get())
    var seen = 0L
    iterator.seek(prefix)
    while (
      iterator.isValid && {
        val key = iterator.key(); own(key, prefix) && { row(drop(key, start), value); true }
      }
    ) {
      seen += 1
      if (seen % 8192 == 0) task.killTaskIfInterrupted()
      iterator.next()
    }
    iterator.status() // an iterator that ends because of an error says so here only
  }

  private def own(key: Array[Byte], prefix: Array[Byte]): Boolean =
    prefix.length == 0 || Arrays.equals(key, 0, prefix.length, prefix, 0, prefix.length)

  private def drop(key: Array[Byte], start: Int): Array[Byte] =
    if (start == 0) key else Arrays.copyOfRange(key, start, key.length)
}
