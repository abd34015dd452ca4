// In Spark's package because it runs a part of a physical plan.
package org.apache.spark.sql.skewless.route

import io.skewless.observe.{Application, HotKeys, KeyCount, KeySampler, Upcoming}
import io.skewless.table.{Left, Probe, Right, SharedTable, Side, Table}
import org.apache.spark.{SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{
  ApplyColumnarRulesAndInsertTransitions,
  CollapseCodegenStages,
  SQLExecution
}
import org.apache.spark.sql.execution.exchange.{BroadcastExchangeLike, Exchange, ShuffleExchangeExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.skewless.query.RunningBatch

/**
 * Counts the rows of a micro-batch by key before it is routed, so that its table can be made from what it
 * holds rather than from what the batches before it held. Reads the input up to the shuffle once more, in a
 * job of its own; nothing of it is kept.
 *
 * Only where that is safe and cheap to say: the input of every exchange must come straight from the sources,
 * since a stateful step below it would write its state twice, and another shuffle would be run twice.
 */
private[skewless] object LookAhead {

  /** What the batch holds, weighed by the table that it would be routed by; None if that cannot be had. */
  def count(
      exchanges: Seq[(Exchange, Option[Side])],
      table: Table,
      session: SparkSession,
      batch: RunningBatch
  ): Option[Upcoming] = {
    val inputs = exchanges.collect {
      case (exchange: ShuffleExchangeExec, side) if isPlain(exchange, table) => (exchange, side)
    }
    if (inputs.isEmpty || inputs.size != exchanges.size) None
    else
      described(session, s"Skewless looks ahead: the keys of $batch") {
        val tracked = Application.of(session.sparkContext).fold(0)(_.conf.trackedKeys)
        val parts =
          inputs.flatMap { case (exchange, side) =>
            val shared = SharedTable(table, session.sparkContext)
            countedBy(exchange, side, shared, tracked, session).collect().map { case (keys, rows) =>
              (keys, rows, side)
            }
          }
        val loads = Array.tabulate(table.partitions)(p => parts.map(_._2(p)).sum)
        val right = parts.filter(_._3.contains(Right)).map(_._1)
        Some(Upcoming(table.epoch, loads, HotKeys.merge(parts.map(_._1), tracked, right)))
      }
  }

  private def isPlain(exchange: ShuffleExchangeExec, table: Table): Boolean =
    exchange.outputPartitioning.isInstanceOf[HashPartitioning] &&
      exchange.outputPartitioning.numPartitions == table.partitions &&
      !exchange.child.exists {
        case node if node.subqueries.nonEmpty => true // a copy of the plan shares them, and their failures
        case _: BroadcastExchangeLike => false
        case node => node.isInstanceOf[Exchange] || node.isInstanceOf[StateStoreWriter]
      }

  /** On a copy of the plan: the metrics and accumulators of the batch itself must count its rows once. */
  private def countedBy(
      exchange: ShuffleExchangeExec,
      side: Option[Side],
      shared: SharedTable,
      tracked: Int,
      session: SparkSession
  ): RDD[(KeyCount, Array[Long])] = {
    val transitions =
      ApplyColumnarRulesAndInsertTransitions(session.sessionState.columnarRules, outputsColumnar = false)
    val input = CollapseCodegenStages()(transitions(exchange.child.clone()))
    val hashing = exchange.outputPartitioning.asInstanceOf[HashPartitioning]
    val (hash, output) =
      (RoutedPartitioning.keyHash(hashing.partitionIdExpression, hashing.numPartitions), input.output)
    input.execute().mapPartitionsInternal { rows =>
      val (hashOf, table, task) =
        (UnsafeProjection.create(Seq(hash), output), shared.table, TaskContext.get())
      val sampler = new KeySampler(tracked, task.taskAttemptId())
      val loads = new Loads(table, side.getOrElse(Left))
      rows.foreach { row =>
        val key = hashOf(row).getInt(0)
        sampler.see(key)
        loads.add(key)
      }
      Iterator((KeyCount(task.partitionId(), sampler.bytes), loads.rows))
    }
  }

  /** How many rows each partition would be sent; the rows of a split key take turns, which is near enough. */
  private final class Loads(table: Table, side: Side) {
    val rows = new Array[Long](table.partitions)
    private var turn = 0

    def add(hash: Int): Unit =
      if (table.find(hash) > Probe.SplitBase) rows(table.route(hash)) += 1
      else {
        val split = table.split(hash)
        turn += 1
        split.cells(side, Math.floorMod(turn, split.width(side))).foreach(rows(_) += 1)
      }
  }

  /**
   * Under a name for Spark's pages, and with the session's settings, which otherwise reach the tasks of an
   * SQL execution only.
   */
  private def described[T](session: SparkSession, words: String)(body: => T): T = {
    val context = session.sparkContext
    val before = context.getLocalProperty(SparkContext.SPARK_JOB_DESCRIPTION)
    context.setJobDescription(words)
    try SQLExecution.withSQLConfPropagated(session)(body)
    finally context.setJobDescription(before)
  }
}
