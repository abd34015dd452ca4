// In Spark's package because it reads state stores, which are private.
package org.apache.spark.sql.skewless.state

import java.util.UUID

import io.skewless.SkewlessException
import io.skewless.moves.{Chunk, ChunkWriter, StateColumn}
import io.skewless.table.SharedTable
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.StateStore.{DEFAULT_COL_FAMILY_NAME => DefaultFamily}
import org.apache.spark.util.SerializableConfiguration

/**
 * What one export task must know: the stores of its stage at version N, and the tables before and after.
 *
 * @param checkpointIds of each operator, by partition and store, in checkpoint format 2
 * @param scratch       the folder of this run's and batch's files
 * @param carriedBytes  most bytes that a task may return with its result, without a file
 */
private[skewless] final case class StateExport(
    stateRoot: String,
    runId: UUID,
    version: Long,
    stores: Seq[StateStoreLayout],
    checkpointIds: Map[Long, Array[Array[String]]],
    before: SharedTable,
    after: SharedTable,
    scratch: String,
    carriedBytes: Int,
    storeConf: StateStoreConf
) {

  /**
   * The rows of one partition that the new table sends elsewhere: with the chunks if they are few, else in
   * one file. Runs in a task, where the store is loaded if it can.
   */
  def leaving(source: Int, hadoop: Configuration): Seq[Chunk] = {
    val file = new Path(scratch, s"$source-${stores.head.operatorId}-${TaskContext.get().taskAttemptId()}")
    val writer = new ChunkWriter(file, source, hadoop, carriedBytes)
    try {
      stores.foreach(store => scan(store, source, hadoop, writer))
      writer.close()
    } catch {
      case e: Throwable =>
        writer.abort()
        throw e
    }
  }

  private def scan(
      layout: StateStoreLayout,
      source: Int,
      hadoop: Configuration,
      writer: ChunkWriter
  ): Unit = {
    val loaded = MovingStateStoreProvider.find(providerId(layout, source))
    val provider = loaded.getOrElse(layout.open(stateRoot, source, storeConf, hadoop))
    try {
      val store = provider.committed(version, checkpointId(layout, source))
      val names =
        if (layout.usesFamilies) provider.rocksDB.allColumnFamilyNames.toSeq.sorted else Seq(DefaultFamily)
      try names.foreach(name => scan(layout, name, source, provider, writer))
      finally store.release()
    } finally if (loaded.isEmpty) provider.close()
  }

  private def scan(
      layout: StateStoreLayout,
      name: String,
      source: Int,
      provider: MovingStateStoreProvider,
      writer: ChunkWriter
  ): Unit = {
    val family = layout.family(name)
    val keyHash = family.map(_.keyHash(storeConf.stateStoreEncodingFormat, layout.usesFamilies))
    val column = family.map(f => StateColumn(layout.operatorId, f.storeName, f.name, f.isList))
    val ways = new Departures(before.table, after.table, family.flatMap(_.join).map(_.side), source)
    StateScan.foreach(provider.rocksDB, name, layout.usesFamilies) { (key, value) =>
      val hash = keyHash.fold(throw unknown(layout, name))(_(key))
      val leaving = ways.of(hash)
      if (leaving eq Departures.Misplaced) throw misplaced(layout, name, source, hash)
      leaving.foreach { way =>
        writer.add(column.get, way, key, if (way.target < 0) Array.emptyByteArray else value())
      }
    }
  }

  private def unknown(layout: StateStoreLayout, name: String): SkewlessException =
    SkewlessException.checkpoint(
      s"column family $name of operator ${layout.operatorId} under $stateRoot has rows but no schema in " +
        "the checkpoint, so their keys " +
        "cannot be known. Nothing was moved; the checkpoint is as it was."
    )

  private def misplaced(
      layout: StateStoreLayout,
      family: String,
      source: Int,
      hash: Int
  ): SkewlessException =
    SkewlessException.checkpoint(
      s"partition $source of operator ${layout.operatorId} ($family) under $stateRoot holds key hash " +
        s"$hash, which the table in force " +
        s"(epoch ${before.table.epoch}) puts in partition ${before.table.targets(hash).mkString(" and ")}: " +
        "the state was changed behind Skewless. " +
        "Nothing was moved; restore " +
        "the checkpoint from a copy."
    )

  private def providerId(layout: StateStoreLayout, source: Int): StateStoreProviderId =
    StateStoreProviderId(StateStoreId(stateRoot, layout.operatorId, source, layout.storeName), runId)

  /** Always given in format 2: without it the load would take the path of format 1. */
  private def checkpointId(layout: StateStoreLayout, source: Int): Option[String] =
    SymmetricHashJoinStateManager.getStateStoreCheckpointId(
      layout.storeName,
      source,
      checkpointIds.get(layout.operatorId)
    )

  /** Where the first store of a partition is loaded. */
  def location(source: Int, coordinator: StateStoreCoordinatorRef): Seq[String] =
    coordinator.getLocation(providerId(stores.head, source)).toSeq
}

private[skewless] object StateExport {

  /**
   * Runs the export as a Spark job, one task for each partition that gives something; its chunks, in order of
   * source. Driver.
   */
  def run(
      context: SparkContext,
      job: StateExport,
      givers: Seq[Int],
      coordinator: StateStoreCoordinatorRef,
      hadoop: Broadcast[SerializableConfiguration]
  ): Seq[Chunk] = {
    val locations = givers.map(job.location(_, coordinator))
    val rdd = new StateExportRDD(context, job, givers, locations, hadoop)
    context.runJob(rdd, (chunks: Iterator[Chunk]) => chunks.toArray).toSeq.flatten
  }
}

private final case class GivingPartition(index: Int, source: Int, locations: Seq[String]) extends Partition

private final class StateExportRDD(
    context: SparkContext,
    job: StateExport,
    givers: Seq[Int],
    @transient private val locations: Seq[Seq[String]],
    conf: Broadcast[SerializableConfiguration]
) extends RDD[Chunk](context, Nil) {

  override protected def getPartitions: Array[Partition] =
    givers.indices.map(i => GivingPartition(i, givers(i), locations(i)): Partition).toArray

  override protected def getPreferredLocations(split: Partition): Seq[String] =
    split.asInstanceOf[GivingPartition].locations

  override def compute(split: Partition, task: TaskContext): Iterator[Chunk] =
    job.leaving(split.asInstanceOf[GivingPartition].source, conf.value.value).iterator
}
