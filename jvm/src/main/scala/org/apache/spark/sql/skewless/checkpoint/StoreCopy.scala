// In Spark's package because state stores are Spark-private.
package org.apache.spark.sql.skewless.checkpoint

import java.util.UUID

import io.skewless.SkewlessException
import org.apache.hadoop.conf.Configuration
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.skewless.state.StateStoreLayout
import org.apache.spark.util.SerializableConfiguration

/** A partition of a store that has been copied; the id is of checkpoint format 2. */
private[checkpoint] final case class CopiedPartition(partition: Int, rows: Long, checkpointId: Option[String])

/**
 * Copies one state store from one provider to another through Spark's own interface, partition by partition,
 * in tasks: version `batch` as the one has it becomes version `batch + 1` of the other.
 */
private[checkpoint] final case class StoreCopy(
    stateRoot: String,
    layout: StateStoreLayout,
    batch: Long,
    from: StateStoreConf,
    to: StateStoreConf,
    hadoop: Broadcast[SerializableConfiguration]
) {

  /** Rows are read back and counted before the task ends. */
  def copy(partition: Int): CopiedPartition = {
    val copied =
      withProvider(partition, from)(source => withProvider(partition, to)(copy(partition, source, _)))
    val found = withProvider(partition, to)(count(_, copied.checkpointId))
    if (found != copied.rows)
      throw SkewlessException.checkpoint(
        s"partition $partition of operator ${layout.operatorId} under $stateRoot has ${copied.rows} rows, " +
          s"its copy $found. Nothing was committed; the old state is as it was."
      )
    copied
  }

  private def copy(
      partition: Int,
      source: StateStoreProvider,
      target: StateStoreProvider
  ): CopiedPartition = {
    val old = source.getReadStore(batch, None)
    val copied = target.getStore(batch, None, forceSnapshotOnCommit = true, loadEmpty = true)
    try {
      var rows = 0L
      old.iterator().foreach { pair =>
        copied.put(pair.key, pair.value)
        rows += 1
      }
      copied.commit()
      CopiedPartition(partition, rows, copied.getStateStoreCheckpointInfo().stateStoreCkptId)
    } catch {
      case e: Throwable =>
        if (!copied.hasCommitted) copied.abort()
        throw e
    } finally old.release()
  }

  private def count(provider: StateStoreProvider, checkpointId: Option[String]): Long = {
    val store = provider.getReadStore(batch + 1, checkpointId)
    try store.iterator().size.toLong
    finally store.release()
  }

  private def withProvider[T](partition: Int, conf: StateStoreConf)(body: StateStoreProvider => T): T = {
    val schema = layout.family(StateStore.DEFAULT_COL_FAMILY_NAME).get.schema
    val id = StateStoreId(stateRoot, layout.operatorId, partition, layout.storeName)
    val provider = StateStoreProvider.createAndInit(
      StateStoreProviderId(id, UUID.randomUUID()),
      schema.keySchema,
      schema.valueSchema,
      schema.keyStateEncoderSpec.get,
      useColumnFamilies = false,
      conf,
      new Configuration(hadoop.value.value), // createAndInit writes the run's id into it
      useMultipleValuesPerKey = false,
      None
    )
    try body(provider)
    finally provider.close()
  }
}
