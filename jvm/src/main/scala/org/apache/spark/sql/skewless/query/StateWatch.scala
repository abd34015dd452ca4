// In Spark's package because it reads the layout of state stores, which is private.
package org.apache.spark.sql.skewless.query

import io.skewless.observe.BatchListener
import io.skewless.table.Table
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.skewless.state.{StateLayout, StateMeasure, StateStoreLayout}

/** The watch over the state bytes of one run: what the tasks of its stages are to measure, batch by batch. */
final class StateWatch private[query] (attempt: Attempt) {

  /** The stores of each stage, by its first operator, as read from the checkpoint; None where that failed. */
  private var layouts = Map.empty[Long, Option[Seq[StateStoreLayout]]]

  /** What the tasks of one stage measure in this batch; None in batch 0, which has no layout to read yet. */
  private[skewless] def measure(
      batch: RunningBatch,
      session: SparkSession,
      operators: Seq[StatefulOperatorStateInfo],
      table: Option[Table]
  ): Option[StateMeasure] = synchronized {
    var found = Option.empty[StateMeasure]
    if (batch.batchId > 0)
      attempt("measure state: its bytes are estimated") { found = make(batch, session, operators, table) }
    found
  }

  private def make(
      batch: RunningBatch,
      session: SparkSession,
      operators: Seq[StatefulOperatorStateInfo],
      table: Option[Table]
  ): Option[StateMeasure] = {
    val stage = operators.head.operatorId
    if (!layouts.contains(stage)) {
      layouts += stage -> None // so that an error comes once
      layouts += stage -> Some(StateLayout.read(session, operators, batch.batchId))
    }
    for {
      stores <- layouts(stage)
      (hot, sizes) <- BatchListener.trackSizes(session.sparkContext, batch.queryId.toString, batch.batchId)
      tracked = (hot ++ table.fold(Array.emptyIntArray)(_.entries.map(_._1).toArray)).distinct.sorted
      if tracked.nonEmpty
    } yield new StateMeasure(tracked, stores, session.sessionState.conf.stateStoreEncodingFormat, sizes)
  }
}
