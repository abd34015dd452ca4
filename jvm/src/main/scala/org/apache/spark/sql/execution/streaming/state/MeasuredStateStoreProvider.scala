// In this package of Spark's because a parameter of `createRocksDB` is private to it.
package org.apache.spark.sql.execution.streaming.state

import java.io.File

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

/** Hears of every row that a store writes in one task, with its encoded key. One thread. */
private[sql] trait WrittenRows {
  def put(family: String, key: Array[Byte], valueBytes: Long): Unit

  /** A value is added to those that the key has. */
  def append(family: String, key: Array[Byte], valueBytes: Long): Unit
  def remove(family: String, key: Array[Byte]): Unit

  /** The store is committed. */
  def committed(store: RocksDB): Unit
}

/** Spark's RocksDB provider, whose writes can be listened to. */
private[sql] abstract class MeasuredStateStoreProvider extends RocksDBStateStoreProvider {

  /** Who hears of the rows that the current task writes; null: nobody. */
  protected def listen(rows: WrittenRows): Unit = rocksDB match {
    case db: MeasuredRocksDB => db.rows = rows
    case _ =>
  }

  override protected def createRocksDB(
      dfsRootDir: String,
      conf: RocksDBConf,
      localRootDir: File,
      hadoopConf: Configuration,
      loggingId: String,
      useColumnFamilies: Boolean,
      enableStateStoreCheckpointIds: Boolean,
      partitionId: Int,
      eventForwarder: Option[RocksDBEventForwarder],
      uniqueId: Option[String]
  ): RocksDB = new MeasuredRocksDB(
    dfsRootDir,
    conf,
    localRootDir,
    hadoopConf,
    loggingId,
    useColumnFamilies,
    enableStateStoreCheckpointIds,
    partitionId,
    eventForwarder,
    uniqueId
  )
}

/** Spark's wrapper of RocksDB, which tells `rows` of every row that is written, if there is one. */
private final class MeasuredRocksDB(
    dfsRootDir: String,
    conf: RocksDBConf,
    localRootDir: File,
    hadoopConf: Configuration,
    loggingId: String,
    useColumnFamilies: Boolean,
    enableStateStoreCheckpointIds: Boolean,
    partitionId: Int,
    eventForwarder: Option[RocksDBEventForwarder],
    uniqueId: Option[String]
) extends RocksDB(
      dfsRootDir,
      conf,
      localRootDir,
      hadoopConf,
      loggingId,
      useColumnFamilies,
      enableStateStoreCheckpointIds,
      partitionId,
      eventForwarder,
      uniqueId
    ) {

  /** Null while nobody watches. Set by the provider for each task that writes. */
  @volatile var rows: WrittenRows = null

  /** Whether somebody hears of this row: not of one that Spark replays from a changelog. */
  private def isHeard(includesPrefix: Boolean, includesChecksum: Boolean): Boolean =
    rows != null && !includesPrefix && !includesChecksum

  /** Statistics never fail a query: after an error the store is not measured any more in this task. */
  private def hear(event: WrittenRows => Unit): Unit =
    try event(rows)
    catch {
      case NonFatal(e) =>
        rows = null
        logWarning(s"$loggingId: state is not measured in this batch", e)
    }

  override def put(
      key: Array[Byte],
      value: Array[Byte],
      cfName: String,
      includesPrefix: Boolean,
      deriveCfName: Boolean,
      includesChecksum: Boolean
  ): Unit = {
    super.put(key, value, cfName, includesPrefix, deriveCfName, includesChecksum)
    if (isHeard(includesPrefix, includesChecksum)) hear(_.put(cfName, key, value.length))
  }

  override def putList(
      key: Array[Byte],
      values: List[Array[Byte]],
      cfName: String,
      includesPrefix: Boolean,
      includesChecksum: Boolean,
      deriveCfName: Boolean
  ): Unit = {
    super.putList(key, values, cfName, includesPrefix, includesChecksum, deriveCfName)
    if (isHeard(includesPrefix, includesChecksum)) hear(_.put(cfName, key, values.map(_.length.toLong).sum))
  }

  override def merge(
      key: Array[Byte],
      value: Array[Byte],
      cfName: String,
      includesPrefix: Boolean,
      deriveCfName: Boolean,
      includesChecksum: Boolean
  ): Unit = {
    super.merge(key, value, cfName, includesPrefix, deriveCfName, includesChecksum)
    if (isHeard(includesPrefix, includesChecksum)) hear(_.append(cfName, key, value.length))
  }

  override def mergeList(
      key: Array[Byte],
      values: List[Array[Byte]],
      cfName: String,
      includesPrefix: Boolean,
      includesChecksum: Boolean,
      deriveCfName: Boolean
  ): Unit = {
    super.mergeList(key, values, cfName, includesPrefix, includesChecksum, deriveCfName)
    if (isHeard(includesPrefix, includesChecksum))
      hear(_.append(cfName, key, values.map(_.length.toLong).sum))
  }

  override def remove(
      key: Array[Byte],
      cfName: String,
      includesPrefix: Boolean,
      deriveCfName: Boolean,
      includesChecksum: Boolean
  ): Unit = {
    super.remove(key, cfName, includesPrefix, deriveCfName, includesChecksum)
    if (isHeard(includesPrefix, includesChecksum)) hear(_.remove(cfName, key))
  }

  override def commit(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = {
    val committed = super.commit(forceSnapshot)
    if (rows != null) hear(_.committed(this))
    rows = null
    committed
  }

  override def rollback(): Unit = {
    rows = null
    super.rollback()
  }
}
