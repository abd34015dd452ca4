// In Spark's package because what it tells is private to Spark SQL.
package org.apache.spark.sql.skewless

import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.sql.streaming.StreamingQueryListener.{QueryProgressEvent, QueryTerminatedEvent}

/** Hears that batches are committed and queries end, so that swaps are recorded and their scratch is removed. Driver. */
final class SwapListener extends SparkListener {
  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case end: QueryProgressEvent =>
      RunningQueries.committed(end.progress.runId, end.progress.batchId, end.progress.batchDuration)
    case end: QueryTerminatedEvent => RunningQueries.ended(end.runId)
    case _ =>
  }
}
