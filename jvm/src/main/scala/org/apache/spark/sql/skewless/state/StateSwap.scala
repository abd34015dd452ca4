// In Spark's package because it reads the layout of state stores, which is private.
package org.apache.spark.sql.skewless.state

import io.skewless.moves.Chunk
import io.skewless.table.{SharedTable, Table, TableDiff}
import org.apache.hadoop.fs.Path
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.util.SerializableConfiguration

/** The run that a swap is made in. */
private[skewless] trait SwappingRun {

  /** Notes what was exported: how many key hashes changed places, what moved, and how long that took. */
  def exported(keyHashes: Int, moved: Seq[Chunk], millis: Long): Unit

  /** Hadoop's settings of the query, sent to the executors once a run. */
  def hadoop: Broadcast[SerializableConfiguration]

  /** Waits until state may be placed by the new table. */
  def settle(): Unit
}

/**
 * The two ways in which moved state travels.
 *
 * @param scratch      the folder of this run's and batch's files
 * @param carriedBytes most bytes that travel with tasks and their results instead, a stage
 */
private[skewless] final case class MovesBy(scratch: Path, carriedBytes: Int)

/** What one stage's state moves in a swap, and how the stores that take part keep their rows. */
private[skewless] final case class StateMoves(chunks: Seq[Chunk], stores: Seq[StateStoreLayout]) {

  /** What the source does not keep. */
  def leaving: Seq[Chunk] = chunks.filterNot(_.keeps)
}

private[skewless] object StateMoves {
  val None: StateMoves = StateMoves(Nil, Nil)
}

/**
 * The move of one stage's state in one batch, from table to table. Shared by the nodes above all exchanges of
 * the stage, so that the export runs once however many of them there are, and however many actions the batch
 * has. Making it has no effect; reading `moved` runs the export.
 */
private[skewless] final class StateSwap(
    session: SparkSession,
    operators: Seq[StatefulOperatorStateInfo],
    before: Table,
    after: Table,
    batchId: Long,
    by: MovesBy,
    run: SwappingRun
) {

  /** What moves, exported on first use. */
  lazy val moved: StateMoves = {
    val found = exported()
    run.settle()
    found
  }

  /** Nothing can move out of version 0. */
  private def exported(): StateMoves = {
    val changes = TableDiff.diff(before, after)
    if (changes.isEmpty || batchId == 0) StateMoves.None
    else {
      val started = System.nanoTime()
      val stores = StateLayout.read(session, operators, batchId)
      val chunks = exportFrom(changes.flatMap(_.before.targets).distinct.sorted, stores)
      run.exported(changes.size, chunks, (System.nanoTime() - started) / 1000000)
      StateMoves(chunks, stores)
    }
  }

  private def exportFrom(givers: Seq[Int], stores: Seq[StateStoreLayout]): Seq[Chunk] = {
    val job = StateExport(
      new Path(operators.head.checkpointLocation).toString,
      operators.head.queryRunId,
      batchId,
      stores,
      operators.flatMap(info => info.stateStoreCkptIds.map(info.operatorId -> _)).toMap,
      SharedTable(before, session.sparkContext),
      SharedTable(after, session.sparkContext),
      by.scratch.toString,
      by.carriedBytes / givers.size,
      new StateStoreConf(session.sessionState.conf)
    )
    StateExport.run(session.sparkContext, job, givers, session.streams.stateStoreCoordinator, run.hadoop)
  }
}
