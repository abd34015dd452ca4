// In Spark's package because the logs of a checkpoint are Spark-private.
package org.apache.spark.sql.skewless.checkpoint

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionUtils
import org.apache.spark.sql.skewless.query.Handover

/**
 * Mends the checkpoint of a stopped query that an offline tool has left half-way. Such a tool begins a batch
 * of its own in the offset log and ends it in the commit log; until then no start goes through. The entry
 * that it began is taken away: the query then goes on from the batch before, whose state nobody has touched.
 */
object MendCheckpoint {

  def apply(session: SparkSession, location: String): String = {
    val checkpoint = new StoppedCheckpoint(session, location)
    import checkpoint._
    if (isRepartition && provider(newest) == Handover.Sparks)
      refuse(
        s"batch $newest is a repartition by plain Spark that has not finished. Spark finishes it: run " +
          s"spark._streamingCheckpointManager.repartition again with the same number of partitions, " +
          s"${partitions(checkpoint)}. Nothing was changed."
      )
    else if (isRepartition) taken(checkpoint, "Spark's offline repartition, which it refused,")
    else if (ConvertCheckpoint.isBegun(checkpoint)) {
      FileSinkLog.of(checkpoint, None, newest).filter(_.newest >= newest).foreach { sink =>
        refuse(
          s"the file sink's log in ${sink.dir} has batch $newest of the conversion already, so the query must " +
            "not run a batch of that number. Run `skewless convert` again, which finishes it. Nothing was " +
            "changed."
        )
      }
      taken(checkpoint, "a conversion that did not finish")
    } else s"$root: there is nothing to mend. Nothing was changed."
  }

  private def taken(checkpoint: StoppedCheckpoint, whose: String): String = {
    val kept = checkpoint.removeNewest()
    s"${checkpoint.root}: batch ${checkpoint.newest}, begun by $whose is taken back; the query goes on " +
      s"from batch ${checkpoint.newestCommit + 1}. The entry is kept in $kept."
  }

  private def partitions(checkpoint: StoppedCheckpoint): Int =
    OfflineStateRepartitionUtils.getShufflePartitions(checkpoint.entry(checkpoint.newest).metadataOpt.get).get
}
