// In Spark's package because physical nodes are Spark-private.
package org.apache.spark.sql.skewless

import io.skewless.{SkewlessException, Table, TableDiff}
import org.apache.hadoop.fs.Path
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.internal.SQLConf

/**
 * The input of a stateful stage: marks its tasks, and in a batch that swaps tables exports the state that moves before any of them
 * runs. Stands above every exchange that feeds the stage. Nothing is done per row.
 *
 * @param swap    the driver's part; stateful operators serialize the plan below them, and it stays behind
 * @param measure what the loop wants measured of the state that the stage writes, if somebody watches
 */
case class StateSwapExec(
    mark: StateMark,
    @transient swap: Option[StateSwap],
    @transient measure: Option[StateMeasure],
    child: SparkPlan
) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def withNewChildInternal(newChild: SparkPlan): StateSwapExec = copy(child = newChild)
  override protected def doPrepare(): Unit = swap.foreach(_.moved)
  override protected def doExecute(): RDD[InternalRow] =
    new StateMarkRDD(child.execute(), mark, measure, swap.fold(Seq.empty[Chunk])(_.moved))
}

/**
 * The move of one stage's state in one batch, from table to table. Shared by the nodes above all exchanges of the stage, so that the
 * export runs once however many of them there are, and however many actions the batch has.
 */
private[skewless] final class StateSwap(
    session: SparkSession,
    operators: Seq[StatefulOperatorStateInfo],
    before: Table,
    after: Table,
    batch: RunningBatch
) {

  /** What moves, exported on first use. Nothing can move out of version 0. */
  lazy val moved: Seq[Chunk] = {
    val changes = TableDiff.diff(before, after)
    if (changes.isEmpty || batch.batchId == 0) Nil
    else {
      val started = System.nanoTime()
      val chunks = exportFrom(changes.map(_.before.head).distinct.sorted)
      RunningQueries.exported(batch, changes.size, chunks, (System.nanoTime() - started) / 1000000)
      chunks
    }
  }

  private def exportFrom(givers: Seq[Int]): Seq[Chunk] = {
    val conf = session.sessionState.conf
    val hadoop = session.sessionState.newHadoopConf()
    val root = new Path(operators.head.checkpointLocation)
    val layouts = StateSwap.layouts(session, operators, batch)
    val job = StateExport(
      root.toString,
      operators.head.queryRunId,
      batch.batchId,
      layouts,
      operators.flatMap(info => info.stateStoreCkptIds.map(info.operatorId -> _)).toMap,
      SharedTable(before, session.sparkContext),
      SharedTable(after, session.sparkContext),
      StateSwap.scratch(batch).toString,
      new StateStoreConf(conf)
    )
    StateExport.run(session.sparkContext, job, givers, session.streams.stateStoreCoordinator, hadoop)
  }
}

private[skewless] object StateSwap {

  /** Scratch of one run and one batch. */
  def scratch(batch: RunningBatch): Path =
    new Path(batch.execution.resolvedCheckpointRoot, s"_skewless/moves/${batch.batchId}-${batch.execution.runId}")

  /** The stores of these operators as the batch before left them. */
  def layouts(session: SparkSession, operators: Seq[StatefulOperatorStateInfo], batch: RunningBatch): Seq[StateStoreLayout] =
    StateLayout.read(
      new Path(operators.head.checkpointLocation),
      batch.batchId - 1,
      operators.map(_.operatorId).toSet,
      session.sessionState.conf.getConf(SQLConf.STREAMING_JOIN_STATE_FORMAT_VERSION),
      session.sessionState.newHadoopConf()
    )

  def check(info: StatefulOperatorStateInfo, batch: RunningBatch): Unit =
    if (info.storeVersion != batch.batchId)
      throw SkewlessException.version(
        s"operator ${info.operatorId} reads state version ${info.storeVersion} in $batch, Skewless knows only versions that count " +
          "batches. Use a Spark that this release serves."
      )
}
