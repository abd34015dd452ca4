// In Spark's package because it hears of the rows that Spark's stores write.
package org.apache.spark.sql.skewless.state

import java.util.Arrays

import scala.collection.mutable

import io.skewless.observe.{FamilySizes, KeySizes, TaskSizes}
import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreId, WrittenRows}

/**
 * What a watched stage measures in this batch: the state bytes of these key hashes, and of each partition.
 * Made in the driver, used by `MovingStateStoreProvider` in the stage's tasks. Statistics only: what cannot
 * be measured is left out.
 *
 * @param tracked sorted
 */
private[skewless] final class StateMeasure(
    tracked: Array[Int],
    layouts: Seq[StateStoreLayout],
    encoding: String,
    sizes: KeySizes
) extends Serializable {

  /** The sizes of one store in the current task; null where its layout is not known. */
  def of(store: StateStoreId): StoreSizes = layouts
    .find(layout => layout.operatorId == store.operatorId && layout.storeName == store.storeName)
    .map { layout =>
      val name = s"${store.operatorId}/${store.storeName}"
      new StoreSizes(
        layout,
        tracked,
        encoding,
        (bytes, found) => sizes.add(TaskSizes(store.partitionId, name, bytes, found))
      )
    }
    .orNull
}

/**
 * Sizes of the state that one task writes to one store, by key hash. Called for every row that is written;
 * one thread.
 */
private[skewless] final class StoreSizes(
    layout: StateStoreLayout,
    tracked: Array[Int],
    encoding: String,
    handOver: (Long, Seq[FamilySizes]) => Unit
) extends WrittenRows {
  private final class Family(family: StateFamily) {
    private val hash = family.keyHash(encoding, layout.usesFamilies)
    private val grows = family.grows
    private val bytes = Array.fill(tracked.length)(-1L) // -1: not written

    def write(key: Array[Byte], rowBytes: Long, appends: Boolean): Unit = {
      val at = Arrays.binarySearch(tracked, hash(key))
      if (at >= 0) bytes(at) = if ((grows || appends) && bytes(at) > 0) bytes(at) + rowBytes else rowBytes
    }

    def remove(key: Array[Byte]): Unit = if (!grows) {
      val at = Arrays.binarySearch(tracked, hash(key))
      if (at >= 0) bytes(at) = 0
    }

    def found: FamilySizes = {
      val at = bytes.indices.filter(bytes(_) >= 0).toArray
      FamilySizes(
        s"${layout.operatorId}/${layout.storeName}/${family.name}",
        grows,
        at.map(tracked(_)),
        at.map(bytes(_))
      )
    }
  }

  private val families = mutable.HashMap.empty[String, Option[Family]]

  private def family(name: String): Option[Family] =
    families.getOrElseUpdate(name, layout.family(name).map(new Family(_)))

  override def put(name: String, key: Array[Byte], valueBytes: Long): Unit =
    family(name).foreach(_.write(key, key.length + valueBytes, false))

  override def append(name: String, key: Array[Byte], valueBytes: Long): Unit =
    family(name).foreach(_.write(key, valueBytes, true))

  override def remove(name: String, key: Array[Byte]): Unit = family(name).foreach(_.remove(key))

  override def committed(store: RocksDB): Unit =
    handOver(StateScan.liveBytes(store), families.values.flatten.map(_.found).filter(_.hashes.nonEmpty).toSeq)
}
