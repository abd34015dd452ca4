// In Spark's package because the logs of a checkpoint are Spark-private.
package org.apache.spark.sql.skewless.checkpoint

import io.skewless.SkewlessException
import io.skewless.table.Table
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.{
  OffsetMap,
  OffsetSeq,
  OffsetSeqBase,
  OffsetSeqMetadata,
  OffsetSeqMetadataV2
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.query.Handover

/**
 * Gives the checkpoint of a stopped query back to plain Spark, and takes that back. Only the newest entry of
 * the offset log is changed: the next start takes the provider from there. Each gives a sentence that says
 * what was done.
 */
object ReleaseCheckpoint {

  def release(session: SparkSession, location: String): String = {
    val checkpoint = new StoppedCheckpoint(session, location)
    import checkpoint._
    if (!isStateful) refuse("it keeps no state, so nothing ties it to Skewless: plain Spark goes on with it.")
    provider(newest) match {
      case Handover.Ours =>
        checkHome(checkpoint)
        val kept = replaceNewest(named(entry(newest), Handover.Sparks))
        s"$root is plain Spark's from its next start on: entry $newest of its offset log names Spark's " +
          s"provider. The entry as it was is kept in $kept; `skewless release --undo` puts it back."
      case other => s"$root is plain Spark's already: its newest entry names $other. Nothing was changed."
    }
  }

  /** Sets up a session for Spark's offline repartition of this checkpoint. */
  def prepareRepartition(session: SparkSession, location: String): Unit = {
    val format = new StoppedCheckpoint(session, location).formatVersion
    session.conf.set(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key, format.toString)
    val _ = session.streams.stateStoreCoordinator // stores report to it, and without a query nobody made it
  }

  def undo(session: SparkSession, location: String): String = {
    val checkpoint = new StoppedCheckpoint(session, location)
    import checkpoint._
    val before = kept.filter(_.metadataOpt.flatMap(Handover.providerOf).contains(Handover.Ours)).getOrElse {
      refuse(
        s"there is no release to undo: entry $newest, its newest, was not changed by `skewless release`. " +
          "To put the query on Skewless again, start it with spark.skewless.adopt=true."
      )
    }
    if (provider(newest) == Handover.Ours) s"$root names Skewless's provider already. Nothing was changed."
    else {
      replaceNewest(before)
      s"$root is Skewless's again: entry $newest of its offset log is as it was before the release."
    }
  }

  /** Every key must lie at home, before and after the newest batch: it runs again if it is not committed. */
  private def checkHome(checkpoint: StoppedCheckpoint): Unit = {
    import checkpoint._
    if (isRepartition)
      refuse("Spark's offline repartition was tried and broken off. Run `skewless mend` first.")
    val lying = if (isCommitted) Seq(pins.tableAt(newest)) else Seq(newest - 1, newest).map(pins.tableAt)
    val away = (lying :+ pins.latest).flatten.find(!_.isEmpty)
    away.foreach(table => throw SkewlessException.checkpoint(s"$root: ${whyAway(checkpoint, table)}"))
  }

  private def whyAway(checkpoint: StoppedCheckpoint, table: Table): String = {
    import checkpoint._
    val lies =
      s"its state lies by the table of epoch ${table.epoch}, which moves ${table.size} keys from home. "
    if (pins.latest.exists(_.isEmpty))
      lies + s"Batch ${pins.newestBatch} takes them home: start the query with Skewless, let that batch " +
        "finish, stop it, and release it then. Nothing was changed."
    else
      lies + "Start the query with Skewless and call balancer.release(query), which takes them home; or " +
        "publish an empty table, let its batch finish, stop the query, and release it then. Nothing was " +
        "changed."
  }

  /** The same entry with another provider. */
  def named(entry: OffsetSeqBase, provider: String): OffsetSeqBase =
    (entry, entry.metadataOpt.map(Handover.named(_, provider))) match {
      case (first: OffsetSeq, Some(metadata: OffsetSeqMetadata)) => first.copy(metadataOpt = Some(metadata))
      case (second: OffsetMap, Some(metadata: OffsetSeqMetadataV2)) => second.copy(metadata = metadata)
      case _ => throw Handover.unknown(entry.version)
    }
}
