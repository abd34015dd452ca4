// In Spark's package because it changes what a StreamExecution writes next, which Spark keeps private.
package org.apache.spark.sql.skewless.query

import io.skewless.SkewlessException
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.checkpointing.{
  OffsetSeqMetadata,
  OffsetSeqMetadataBase,
  OffsetSeqMetadataV2
}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{
  HDFSBackedStateStoreProvider,
  RocksDBStateStoreProvider
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.SkewlessStateStoreProvider

/**
 * Takes a running query's checkpoint over from Spark's RocksDB provider, and gives it back.
 *
 * A checkpoint belongs to the provider that its newest entry of the offset log names: a start takes the name
 * from there. An entry is written before its batch is planned, so what a batch changes shows in the next one:
 * {{{
 *   adopt    batch N      entry N names Spark's     its tasks write with ours, nothing moves
 *            batch N + 1  entry N + 1 names ours    once it stands, tables are taken
 *   release  batch K      entry K names ours        every key goes home
 *            batch K + 1  entry K + 1 names Spark's all keys are at home, and stay there
 * }}}
 * So state that a table has placed never stands under Spark's name, and no file is edited. Both providers
 * write the same files. Not thread-safe: `QueryTables` holds the lock.
 */
private[query] final class Handover(execution: StreamExecution) extends Logging {

  /** The provider that this run has its next entries name, if that is another than its first entry's. */
  private var changedTo = Option.empty[String]

  /**
   * From this batch on ours is the provider, in this run's memory. Only before a run has opened a store:
   * Spark keeps the providers that it has loaded.
   *
   * @param conf of the session in which the run plans its batches
   */
  def adopt(batchId: Long, conf: SQLConf): Unit = {
    conf.setConf(SQLConf.STATE_STORE_PROVIDER_CLASS, Handover.Ours)
    nextEntryNames(Handover.Ours)
    logWarning(
      s"query ${execution.id}: Skewless adopts its checkpoint ${execution.resolvedCheckpointRoot}. From " +
        s"batch ${batchId + 1} on it can be started only with the Skewless jar and extension, until it is " +
        "released"
    )
  }

  /** The run goes on with our provider, which leaves every key at home. */
  def release(batchId: Long): Unit = if (next.contains(Handover.Ours)) {
    nextEntryNames(Handover.Sparks)
    logWarning(
      s"query ${execution.id}: Skewless gives its checkpoint ${execution.resolvedCheckpointRoot} back. " +
        s"Once batch ${batchId + 1} has begun, plain Spark can go on with it"
    )
  }

  private def nextEntryNames(provider: String): Unit = {
    val context = execution.getLatestExecutionContext()
    context.offsetSeqMetadata = Handover.named(context.offsetSeqMetadata, provider)
    changedTo = Some(provider)
  }

  /** The provider that the entry of a batch names; None if there is no such entry, or it names none. */
  def entry(batchId: Long): Option[String] =
    execution.offsetLog.get(batchId).flatMap(_.metadataOpt).flatMap(Handover.providerOf)

  /** The provider that a start now would take. */
  def newest: Option[String] = execution.offsetLog.getLatestBatchId().flatMap(entry)

  /** The provider that the run's next entry will name, as far as is known. */
  def next: Option[String] = changedTo.orElse(newest)
}

private[skewless] object Handover {
  val Ours: String = classOf[SkewlessStateStoreProvider].getName
  val Sparks: String = classOf[RocksDBStateStoreProvider].getName
  val HdfsBacked: String = classOf[HDFSBackedStateStoreProvider].getName
  private val Key = SQLConf.STATE_STORE_PROVIDER_CLASS.key

  def providerOf(metadata: OffsetSeqMetadataBase): Option[String] = metadata.conf.get(Key)

  def unknown(version: Int): SkewlessException = SkewlessException.version(
    s"the offset log is of version $version, which this release does not know. Use the Skewless that " +
      "serves this Spark."
  )

  /** The same, but for the provider. */
  def named(metadata: OffsetSeqMetadataBase, provider: String): OffsetSeqMetadataBase = metadata match {
    case first: OffsetSeqMetadata => first.copy(conf = first.conf + (Key -> provider))
    case second: OffsetSeqMetadataV2 => second.copy(conf = second.conf + (Key -> provider))
    case other => throw unknown(other.version)
  }
}
