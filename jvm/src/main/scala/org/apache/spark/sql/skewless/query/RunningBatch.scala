// In Spark's package because it reads StreamExecution, which Spark keeps private.
package org.apache.spark.sql.skewless.query

import java.util.UUID

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.RealTimeTrigger
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}

/** The micro-batch that the current thread plans: on a stream's own thread, inside `foreachBatch` too. */
final case class RunningBatch(queryId: UUID, batchId: Long, execution: StreamExecution) {
  override def toString: String = s"batch $batchId of query $queryId"

  /** Whether rows go on to the next stage before the batch ends, so that no job can stand between stages. */
  def isRealTime: Boolean = execution.trigger.isInstanceOf[RealTimeTrigger]
}

object RunningBatch {
  def current(session: SparkSession): Option[RunningBatch] = for {
    query <- Option(session.sparkContext.getLocalProperty(StreamExecution.QUERY_ID_KEY)).map(UUID.fromString)
    batch <- Option(session.sparkContext.getLocalProperty(MicroBatchExecution.BATCH_ID_KEY)).map(_.toLong)
    execution <- Option(session.sharedState.activeStreamingQueries.get(query))
  } yield RunningBatch(query, batch, execution)
}
