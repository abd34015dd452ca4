// In Spark's package because state stores and the logs of a checkpoint are Spark-private.
package org.apache.spark.sql.skewless.checkpoint

import org.apache.hadoop.fs.{Path, PathFilter}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.v2.state.metadata.StateMetadataPartitionReader
import org.apache.spark.sql.execution.streaming.checkpointing.{CommitMetadataV2, OffsetSeqMetadata}
import org.apache.spark.sql.execution.streaming.state.{OperatorStateMetadata, StateStoreConf}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.query.Handover
import org.apache.spark.sql.skewless.state.{StateLayout, StateStoreLayout}
import org.apache.spark.util.SerializableConfiguration

/**
 * Makes an HDFS-backed checkpoint one of Spark's RocksDB provider, as a batch M of its own that reads no
 * input:
 * {{{
 *   copy     version M of each store, as the HDFS-backed provider reads it, into version M + 1 of the other
 *   begin    offsets/M: the entry before, with the other provider
 *   sink     an empty entry M in the log of Spark's file sink, if the query has one
 *   commit   commits/M: the commit before
 * }}}
 * The state goes first: until `begin` the checkpoint is what it was, with some files beside it that no entry
 * names; afterwards all that is missing is the commit. Broken off anywhere, it can be done again from the
 * start; the next try writes the same files anew. The old state stays until somebody drops it.
 *
 * It becomes Spark's provider, not ours, so that it stays a checkpoint of plain Spark. Adopting it is a step
 * of its own, which can be undone.
 *
 * @param checkpointFormat that the query will run with: Spark takes no checkpoint from the first to the
 *   second
 * @param fileSink         the folder that the query writes with Spark's own file sink, if it does
 */
final class ConvertCheckpoint(
    session: SparkSession,
    location: String,
    checkpointFormat: Int,
    fileSink: Option[String] = None
) {
  private val checkpoint = new StoppedCheckpoint(session, location)
  import checkpoint._

  private val isBegun = ConvertCheckpoint.isBegun(checkpoint)

  /** The last batch of the old provider. */
  private val last: Long = if (isBegun) newest - 1 else newest

  private val sourceProvider = provider(last)
  if (!isStateful) refuse("it keeps no state, so there is nothing to convert.")
  if (sourceProvider != Handover.HdfsBacked)
    refuse(
      s"its state is kept by $sourceProvider, and only ${Handover.HdfsBacked} needs converting. Nothing " +
        "was changed."
    )
  if (isRepartition)
    refuse("Spark's offline repartition was tried and broken off. Run `skewless mend` first.")
  if (newestCommit != last)
    refuse(
      s"batch $newest has begun and is not committed. Start the query as it is, let the batch finish, stop " +
        "it, and convert it then. Nothing was changed."
    )

  private val operators: Seq[OperatorStateMetadata] = new StateMetadataPartitionReader(
    root.toString,
    new SerializableConfiguration(hadoop),
    last
  ).allOperatorStateMetadata.toSeq
  if (operators.isEmpty)
    refuse(
      "it has no operator metadata, which older Sparks did not write: without it the layout of the state " +
        "cannot be known. Run the query once with this Spark. Nothing was changed."
    )

  private val partitionsOf: Map[(Long, String), Int] = (for {
    operator <- operators
    store <- operator.stateStoresMetadata.toSeq
  } yield (operator.operatorInfo.operatorId, store.storeName) -> store.numPartitions).toMap

  private val layouts: IndexedSeq[StateStoreLayout] = {
    val ids = operators.map(_.operatorInfo.operatorId).toSet
    val joinFormat = conf(sourceProvider).getConf(SQLConf.STREAMING_JOIN_STATE_FORMAT_VERSION)
    StateLayout.read(stateDir, last + 1, ids, joinFormat, hadoop).toIndexedSeq
  }

  private val sink: Option[FileSinkLog] = FileSinkLog.of(checkpoint, fileSink, last + 1)
  sink.foreach(_.check(last, isBegun))

  /** What has been copied, by store. */
  private var copied = Map.empty[Int, Seq[CopiedPartition]]

  /** How many stores there are to copy. */
  def stores: Int = layouts.size

  /** The batch that the conversion is. */
  def batch: Long = last + 1

  def describe(store: Int): String = {
    val layout = layouts(store)
    val operator = operators.find(_.operatorInfo.operatorId == layout.operatorId).get.operatorInfo
    s"operator ${layout.operatorId} (${operator.operatorName}), store ${layout.storeName}, " +
      s"${partitions(layout).size} partitions"
  }

  /** Bytes of the state as it is. */
  def bytes: Long = old.map(_._2).sum

  /** Copies one store in a Spark job of a task for each partition: the number of its rows. */
  def copy(store: Int): Long = {
    val layout = layouts(store)
    val job = StoreCopy(
      stateDir.toString,
      layout,
      batch,
      StateStoreConf(conf(sourceProvider, 1)), // it knows no other format
      StateStoreConf(conf(Handover.Sparks, checkpointFormat)),
      SerializableConfiguration.broadcast(session.sparkContext, hadoop)
    )
    val _ = session.streams.stateStoreCoordinator // stores report to it, and without a query nobody made it
    val numbers = partitions(layout)
    val parts = session.sparkContext.parallelize(numbers, numbers.size).map(job.copy).collect().toSeq
    copied += store -> parts
    parts.map(_.rows).sum
  }

  def commit(): String = {
    require(copied.size == stores, "every store is copied before the commit")
    val log = offsets
    val before = entry(last)
    sink.foreach(FileSinkLog.remember(checkpoint, _, batch))
    if (!isBegun && !log.add(batch, ReleaseCheckpoint.named(before, Handover.Sparks)))
      refuse(s"another driver has begun batch $batch. Stop it; it goes on with the old state.")
    sink.foreach(_.add(batch))
    val first = commits.get(last).get
    val committed =
      if (checkpointFormat == 1) first else CommitMetadataV2(first.nextBatchWatermarkMs, Some(ids))
    if (!commits.add(batch, committed))
      refuse(s"another driver has committed batch $batch. Stop it, and look what it did.")
    s"$root is a RocksDB checkpoint from batch $batch on. The query goes on with batch ${batch + 1}. The " +
      "old state is still there; `skewless convert --drop-old` removes it."
  }

  /** By operator, partition and store, as Spark's commit log has them in checkpoint format 2. */
  private def ids: Map[Long, Array[Array[String]]] =
    layouts.indices.groupBy(layouts(_).operatorId).map { case (operator, itsStores) =>
      operator -> itsStores.map(copied(_).map(_.checkpointId.get)).transpose.map(_.toArray).toArray
    }

  /** The settings that the query runs with, as its log has them, with another provider. */
  private def conf(provider: String, format: Int = 1): SQLConf = {
    val settings = session.sessionState.conf.clone()
    OffsetSeqMetadata.setSessionConf(entry(last).metadataOpt.get, settings)
    settings.setConf(SQLConf.STATE_STORE_PROVIDER_CLASS, provider)
    settings.setConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION, format)
    settings
  }

  /**
   * The partitions that a store has. An operator whose rows all meet in one partition is put down with as
   * many as the others, and has the first alone.
   */
  private def partitions(layout: StateStoreLayout): Seq[Int] = {
    val all = 0 until partitionsOf((layout.operatorId, layout.storeName))
    val there = all.filter(p => fs.exists(new Path(stateDir, s"${layout.operatorId}/$p")))
    if (there == Seq(0)) there
    else {
      all
        .diff(there)
        .foreach(p => refuse(s"$stateDir/${layout.operatorId}/$p is missing. Nothing was changed."))
      all
    }
  }

  private def fs = stateDir.getFileSystem(hadoop)

  private def old: Seq[(Path, Long)] = ConvertCheckpoint.hdfsBackedFiles(checkpoint)
}

object ConvertCheckpoint {

  /** Whether the newest entry is one that a conversion has begun and not committed. */
  private[checkpoint] def isBegun(checkpoint: StoppedCheckpoint): Boolean = {
    import checkpoint._
    !isCommitted && newest > 0 && provider(newest) == Handover.Sparks &&
    provider(newest - 1) == Handover.HdfsBacked
  }

  /** Removes the state that the HDFS-backed provider has left, once the checkpoint is another's. */
  def dropOld(session: SparkSession, location: String): String = {
    val checkpoint = new StoppedCheckpoint(session, location)
    import checkpoint._
    if (!isCommitted || provider(newest) == Handover.HdfsBacked)
      refuse("its newest batch is not committed under another provider: the old state is still needed.")
    val old = hdfsBackedFiles(checkpoint)
    val fs = stateDir.getFileSystem(hadoop)
    old.foreach { case (path, _) => fs.delete(path, false) }
    s"$root: ${old.size} files of the HDFS-backed provider are removed, ${old.map(_._2).sum} bytes."
  }

  private def hdfsBackedFiles(checkpoint: StoppedCheckpoint): Seq[(Path, Long)] = {
    val fs = checkpoint.stateDir.getFileSystem(checkpoint.hadoop)
    val isOld: PathFilter = path => path.getName.matches("[0-9]+[.](delta|snapshot)")
    // state/<operator>/<partition>/, and a folder below that for a store with a name
    Seq("*/*", "*/*/*").flatMap { depth =>
      fs.globStatus(new Path(checkpoint.stateDir, s"$depth/*"), isOld)
        .toSeq
        .filter(_.isFile)
        .map(status => status.getPath -> status.getLen)
    }
  }
}
