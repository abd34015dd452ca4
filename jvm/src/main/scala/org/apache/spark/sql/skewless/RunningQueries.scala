// In Spark's package because it reads StreamExecution, which Spark keeps private.
package org.apache.spark.sql.skewless

import java.util.UUID

import scala.collection.concurrent.TrieMap
import scala.util.control.NonFatal

import io.skewless.{KeyCounts, LoadListener, QueryMetrics, SkewlessConf, SkewlessException, SkewlessPlugin, Table, Upcoming}
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.streaming.RealTimeTrigger
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution, StreamingQueryWrapper}
import org.apache.spark.sql.streaming.StreamingQuery

/** The micro-batch that the current thread plans: on a stream's own thread, inside `foreachBatch` too. */
final case class RunningBatch(queryId: UUID, batchId: Long, execution: StreamExecution) {
  override def toString: String = s"batch $batchId of query $queryId"
}

object RunningBatch {
  def current(session: SparkSession): Option[RunningBatch] = for {
    query <- Option(session.sparkContext.getLocalProperty(StreamExecution.QUERY_ID_KEY)).map(UUID.fromString)
    batch <- Option(session.sparkContext.getLocalProperty(MicroBatchExecution.BATCH_ID_KEY)).map(_.toLong)
    execution <- Option(session.sharedState.activeStreamingQueries.get(query))
  } yield RunningBatch(query, batch, execution)
}

/**
 * The tables of every running query: the one place in the driver that says which table a micro-batch is routed by.
 *
 * A table is published by writing it and then its pin, a file `batch -> epoch` for a batch that has not been planned yet. Batch N
 * runs under the epoch of the newest pin at or below N. Neither file is ever overwritten and planning writes nothing, so planning
 * a batch again - a retry, a restart, `explain` - finds the same epoch.
 */
object RunningQueries {

  private val byRun = TrieMap.empty[UUID, QueryTables]
  private val watched = TrieMap.empty[String, Watching]

  private def tables(execution: StreamExecution): QueryTables =
    byRun.getOrElseUpdate(
      execution.runId, {
        byRun.values.filter(!_.execution.isActive).foreach(known => forget(known.execution.runId))
        val tables = new QueryTables(execution)
        if (execution.isActive) tables.metrics.foreach(_.begin(execution.runId, execution.id, execution.name))
        tables
      }
    )

  /** How an exchange of `n` partitions is routed in this batch. Called by the strategy, on the stream's thread. */
  def routingOf(batch: RunningBatch, n: Int): Routed = tables(batch.execution).planned(batch.batchId, n)

  /** The tables before and in this batch, for a plan whose stateful stages are as `shape` says. Called by `RoutedState`. */
  def stateTables(batch: RunningBatch, shape: StateShape): StateTables = tables(batch.execution).stateTables(batch.batchId, shape)

  /** Notes what a swap has exported. Called by `StateSwap`, on the thread that runs the batch. */
  def exported(batch: RunningBatch, keyHashes: Int, moved: Seq[Chunk], millis: Long): Unit =
    tables(batch.execution).exported(batch.batchId, keyHashes, moved, millis)

  /** From the next batch on, count the keys of this query's routed exchanges, and let its planner wait for the loop. */
  def watch(queryId: String, how: Watching): Unit = { watched.put(queryId, how); () }

  /** The loop has decided about all batches of a query up to this one. */
  def decided(queryId: String, batchId: Long): Unit =
    byRun.values.filter(_.execution.id.toString == queryId).foreach(_.decided(batchId))

  private[skewless] def watching(queryId: UUID): Watching = watched.getOrElse(queryId.toString, Watching())

  /** Shows the loop what this batch holds before it is planned, if it wants to see that. Called by `RoutedState`. */
  def lookAhead(batch: RunningBatch)(count: Table => Option[Upcoming]): Unit =
    if (watching(batch.queryId).lookAhead) tables(batch.execution).lookAhead(batch.batchId)(count)

  /** The accumulator for the keys of an exchange, if somebody watches. */
  def keyCounts(batch: RunningBatch, context: SparkContext): Option[KeyCounts] =
    if (watched.contains(batch.queryId.toString)) LoadListener.countKeys(context, batch.queryId.toString, batch.batchId) else None

  /** What to measure of the state that a stage writes, if somebody watches. Called by `RoutedState`. */
  def measure(
      batch: RunningBatch,
      session: SparkSession,
      operators: Seq[StatefulOperatorStateInfo],
      table: Option[Table]
  ): Option[StateMeasure] =
    if (batch.batchId == 0 || !watched.contains(batch.queryId.toString)) None
    else tables(batch.execution).measure(batch, session, operators, table)

  /** A batch of a run is committed. Called on the listener bus. */
  def committed(run: UUID, batchId: Long, batchMs: Long): Unit = byRun.get(run).foreach(_.committed(batchId, batchMs))

  /** A run is over. Called on the listener bus. */
  def ended(run: UUID): Unit = forget(run).foreach { tables =>
    watched.remove(tables.execution.id.toString) // whoever watches goes on asking, which watches the next run
    tables.ended()
  }

  private def forget(run: UUID): Option[QueryTables] = {
    val tables = byRun.remove(run)
    tables.flatMap(_.metrics).foreach(_.end(run))
    tables
  }

  /** Nobody watches any more: from the next batch on no keys are counted. */
  def unwatch(): Unit = {
    watched.clear()
    byRun.values.foreach(_.decided(-1))
  }

  /** Stores a table and pins the next unplanned batch to it: (epoch, batch). Called from Python. */
  def publish(query: StreamingQuery, table: Table, conf: SkewlessConf): (Long, Long) =
    tables(executionOf(query)).publish(table, conf)

  /** The committed swaps of a query's run, oldest first. */
  def swaps(query: StreamingQuery): Seq[SwapRecord] = tables(executionOf(query)).swapRecords

  /** The newest table of a query, pinned or in force. */
  def latest(query: StreamingQuery): Option[Table] = tables(executionOf(query)).latest

  private def executionOf(query: StreamingQuery): StreamExecution = query match {
    case wrapper: StreamingQueryWrapper => wrapper.streamingQuery
    case execution: StreamExecution => execution
    case other =>
      throw SkewlessException.query(s"$other is not a streaming query of this Spark. Pass what writeStream.start() gave.")
  }
}

/**
 * How the loop watches a query.
 *
 * @param planWaitMs how long the planner of a batch may wait until the loop has decided; 0: it never waits
 * @param lookAhead  whether the loop decides about a batch by that batch's own keys, counted before it is planned
 * @param lookShare  the share of a batch's time that such a look may take, to be made in every batch
 */
final case class Watching(planWaitMs: Long = 0, lookAhead: Boolean = false, lookShare: Double = 0.125)

/** The tables before a batch and in it; none means plain hashing. */
private[skewless] final case class StateTables(before: Option[Table], after: Option[Table]) {
  def epoch: Long = after.fold(0L)(_.epoch)
  def tableBefore(n: Int): Table = before.getOrElse(Table.empty(n))
  def tableAfter(n: Int): Table = after.getOrElse(Table.empty(n))
}

/** The tables of one run of one query. The lock orders publishing and planning: a batch is never planned while it is being pinned. */
private[skewless] final class QueryTables(val execution: StreamExecution) extends Logging {
  private val statefulOperator = QueryTables.statefulNode(execution.analyzedPlan)
  private val pinLog = new PinLog(
    new Path(execution.resolvedCheckpointRoot),
    execution.id,
    execution.sparkSession,
    stateful = statefulOperator.isDefined
  )
  private var lastPlanned = -1L
  private val inherited = execution.offsetLog.getLatestBatchId().getOrElse(-1L) // an earlier run may have planned up to here
  private val turn = new PlannersTurn(this, RunningQueries.watching(execution.id).planWaitMs)
  private val lookingAhead = new LookingAhead(RunningQueries.watching(execution.id).lookShare)
  private var routedPartitions: Set[Int] = execution.analyzedPlan.collect { case node: RoutedRepartition => node.n }.toSet

  /** What the last planning found of the query's stateful stages; nothing is known before the first. */
  private var stateShape: Option[StateShape] = None

  private var lastCommitted = -1L
  private var exports = Map.empty[Long, SwapRecord]
  private var swaps = Seq.empty[SwapRecord]

  def planned(batchId: Long, n: Int): Routed = synchronized {
    begin(batchId)
    routedPartitions += n
    pinLog.tableAt(batchId).fold(Routed.Plainly) { table =>
      if (table.partitions != n)
        logWarning(
          s"query ${execution.id}: the table of epoch ${table.epoch} is for ${table.partitions} partitions, an exchange of $n is " +
            "hashed plainly"
        )
      Routed(
        table.epoch,
        Some(table).filter(t => t.partitions == n && !t.isEmpty).map(SharedTable(_, execution.sparkSession.sparkContext))
      )
    }
  }

  /** From here on the batch has been planned: no table is pinned to it any more. */
  private def begin(batchId: Long): Unit = {
    if (mayWait(batchId)) turn.await(batchId)
    if (batchId > lastPlanned) pinLog.checkAlone(batchId)
    lastPlanned = lastPlanned.max(batchId)
  }

  /** Nobody has planned the batch, in this run or an earlier one. */
  private def mayWait(batchId: Long): Boolean = lastPlanned >= 0 && batchId > lastPlanned.max(inherited)

  def decided(batchId: Long): Unit = synchronized(turn.decided(batchId))

  /** Counts what a batch holds and shows it to the loop. The lock is not held meanwhile: counting is a Spark job. */
  def lookAhead(batchId: Long)(count: Table => Option[Upcoming]): Unit = {
    val wanted = synchronized(mayWait(batchId) && turn.waits(batchId) && lookingAhead.due(batchId))
    if (wanted) lookingAhead.timed(attempt("look ahead: the batch is routed by what was before it")(show(batchId, count)))
    if (wanted && !execution.isActive) throw new InterruptedException("the query was stopped while it looked ahead")
  }

  private def show(batchId: Long, count: Table => Option[Upcoming]): Unit = {
    val (started, known) = (System.nanoTime(), synchronized(pinLog.tableAt(batchId)))
    for {
      driver <- SkewlessPlugin.driverOf(execution.sparkSession.sparkContext)
      found <- stateShape.collect { case StateShape.Routable(n) => known.getOrElse(Table.empty(n)) }.flatMap(count)
    } {
      synchronized(turn.shown(batchId))
      driver.listener.show(execution.id.toString, batchId, found, (System.nanoTime() - started) / 1000000)
    }
  }

  /** State that a table has placed must be read by that table: a plan that cannot stops the query. */
  def stateTables(batchId: Long, shape: StateShape): StateTables = synchronized {
    begin(batchId)
    if (stateShape.isEmpty) attempt("delete scratch of earlier runs")(pinLog.cleanOthers(execution.runId))
    stateShape = Some(shape)
    val tables = StateTables(if (batchId == 0) None else pinLog.tableAt(batchId - 1), pinLog.tableAt(batchId))
    (tables.before ++ tables.after).foreach { table =>
      shape match {
        case StateShape.Refused(why) if !table.isEmpty =>
          throw SkewlessException.checkpoint(
            s"the state of query ${execution.id} lies by the table of epoch ${table.epoch}, and batch $batchId cannot be routed by " +
              s"it: $why. The query stops before any row is read."
          )
        case StateShape.Routable(n) if n != table.partitions && !(table.isEmpty && routedPartitions(table.partitions)) =>
          throw SkewlessException.checkpoint(
            s"the state of query ${execution.id} lies by the table of epoch ${table.epoch} in ${table.partitions} partitions, batch " +
              s"$batchId has $n. Something changed the number behind Skewless; restore the checkpoint from a copy."
          )
        case _ =>
      }
    }
    tables
  }

  /** The stores of each stage, by its first operator, as read from the checkpoint; None where that failed. */
  private var layouts = Map.empty[Long, Option[Seq[StateStoreLayout]]]

  def measure(
      batch: RunningBatch,
      session: SparkSession,
      operators: Seq[StatefulOperatorStateInfo],
      table: Option[Table]
  ): Option[StateMeasure] = synchronized {
    var measure = Option.empty[StateMeasure]
    attempt("measure state: its bytes are estimated") { measure = measured(batch, session, operators, table) }
    measure
  }

  private def measured(
      batch: RunningBatch,
      session: SparkSession,
      operators: Seq[StatefulOperatorStateInfo],
      table: Option[Table]
  ): Option[StateMeasure] = {
    val stage = operators.head.operatorId
    if (!layouts.contains(stage)) {
      layouts += stage -> None // so that an error comes once
      layouts += stage -> Some(StateSwap.layouts(session, operators, batch))
    }
    for {
      stores <- layouts(stage)
      (hot, sizes) <- LoadListener.measureState(session.sparkContext, batch.queryId.toString, batch.batchId)
      tracked = (hot ++ table.fold(Array.emptyIntArray)(_.entries.map(_._1).toArray)).distinct.sorted
      if tracked.nonEmpty
    } yield new StateMeasure(tracked, stores, session.sessionState.conf.stateStoreEncodingFormat, sizes)
  }

  /** A stage's state has been exported; a batch may have several such stages. */
  def exported(batchId: Long, keyHashes: Int, moved: Seq[Chunk], millis: Long): Unit = synchronized {
    val earlier = exports.get(batchId)
    def all(of: Chunk => Int, before: SwapRecord => Seq[Int]) = (earlier.toSeq.flatMap(before) ++ moved.map(of)).distinct.sorted
    exports += batchId -> SwapRecord(
      batchId,
      pinLog.tableAt(batchId).fold(0L)(_.epoch),
      pinLog.tableAt(batchId - 1).fold(0L)(_.epoch),
      keyHashes,
      moved.map(_.rows.toLong).sum + earlier.fold(0L)(_.rows),
      moved.map(_.bytes.toLong).sum + earlier.fold(0L)(_.bytes),
      moved.map(_.stateBytes).sum + earlier.fold(0L)(_.stateBytes),
      all(_.source, _.sources),
      all(_.target, _.targets),
      millis + earlier.fold(0L)(_.exportMs),
      batchMs = -1
    )
  }

  /** Where the application's metrics are kept, if it has the plugin. */
  def metrics: Option[QueryMetrics] = SkewlessPlugin.driverOf(execution.sparkSession.sparkContext).map(_.metrics)

  def committed(batchId: Long, batchMs: Long): Unit = synchronized {
    if (batchId > lastCommitted) attempt("keep metrics")(measure(batchId))
    lastCommitted = lastCommitted.max(batchId)
    lookingAhead.batchMs = batchMs
    exports.get(batchId).foreach { swap =>
      exports -= batchId
      swaps = (swaps :+ swap.copy(batchMs = batchMs)).takeRight(QueryTables.RememberedSwaps)
      logInfo(
        s"query ${execution.id}: batch $batchId went from epoch ${swap.fromEpoch} to ${swap.epoch}, moving ${swap.rows} state rows " +
          s"(${swap.bytes} bytes) of ${swap.sources.size} partitions; export ${swap.exportMs} ms, batch $batchMs ms"
      )
      metrics.foreach(_.moved(execution.runId, swap.bytes, swap.exportMs))
      attempt("record a swap")(pinLog.record(swaps.last))
      attempt("delete scratch")(pinLog.clean(execution.runId, batchId + 1))
    }
  }

  private def measure(batchId: Long): Unit = {
    val table = pinLog.tableAt(batchId)
    val epoch = table.fold(0L)(_.epoch)
    val swapped = epoch != pinLog.tableAt(batchId - 1).fold(0L)(_.epoch)
    metrics.foreach(_.committed(execution.runId, epoch, table.fold(0)(_.size), swapped))
    if (swapped && !exports.contains(batchId))
      logInfo(s"query ${execution.id}: batch $batchId went to epoch $epoch; no state moved")
  }

  def ended(): Unit = synchronized(attempt("delete scratch")(pinLog.clean(execution.runId, Long.MaxValue)))

  /** The committed swaps of this run, oldest first. */
  def swapRecords: Seq[SwapRecord] = synchronized(swaps)

  /** Whether it went well. */
  private def attempt(what: String)(body: => Unit): Boolean =
    try { body; true }
    catch {
      case NonFatal(e) =>
        if (execution.isActive) logWarning(s"query ${execution.id}: could not $what", e)
        else logInfo(s"query ${execution.id} has stopped and could not $what: $e")
        false
    }

  def latest: Option[Table] = synchronized(pinLog.latest)

  def publish(table: Table, conf: SkewlessConf): (Long, Long) = synchronized {
    checkQuery(table)
    conf.checkSize(table.size)
    val startedBatch = execution.offsetLog.getLatestBatchId().getOrElse(-1L)
    val planned = if (turn.isOpen(startedBatch)) startedBatch - 1 else startedBatch
    val pinned = pinLog.add(table, notBefore = lastPlanned.max(planned) + 1)
    if (planned < startedBatch) lookingAhead.paid()
    attempt("purge old tables")(execution.offsetLog.listBatchesOnDisk.minOption.foreach(pinLog.purge))
    pinned
  }

  private def refuse(why: String) = throw SkewlessException.query(s"query ${execution.id} cannot take a table: $why")

  private def checkQuery(table: Table): Unit = {
    if (!execution.isActive) refuse("it has stopped. Start it again and publish then; the old table stays in force.")
    if (!execution.isInstanceOf[MicroBatchExecution] || execution.trigger.isInstanceOf[RealTimeTrigger])
      refuse(
        "it does not run in micro-batches, between which tables are swapped. Use a processing-time or available-now trigger."
      )
    statefulOperator.foreach(checkState(_, table))
    val partitions = if (statefulOperator.isEmpty || table.isEmpty) routedPartitions ++ statePartitions else statePartitions.toSet
    if (partitions.isEmpty)
      refuse(
        "no exchange of it is routed (or, inside foreachBatch, none has been planned yet). Put skewless.repartition(df, n, " +
          "key) before the step to level."
      )
    if (!partitions.contains(table.partitions))
      throw SkewlessException.table(
        s"the table is for ${table.partitions} partitions, query ${execution.id} routes exchanges of " +
          s"${partitions.toSeq.sorted.mkString(", ")}. Make the table for that number; the old table stays in force."
      )
  }

  /** The number of partitions that the state lies in, if the query keeps state that can move. */
  private def statePartitions: Option[Int] = stateShape match {
    case Some(StateShape.Routable(n)) => Some(n)
    case None if QueryTables.plansPlainly(execution) => Some(execution.sparkSession.sessionState.conf.numShufflePartitions)
    case _ => None
  }

  private def checkState(operator: String, table: Table): Unit = if (!table.isEmpty) {
    if (table.hasSplits)
      refuse(
        s"its $operator keeps one state a key, and the table splits ${table.splits} keys over several partitions. Move keys " +
          "instead; the old table stays in force."
      )
    def refuseState(why: String) = refuse(s"its $operator keeps state by key, and $why. The old table stays in force.")
    val started = execution.offsetLog.getLatestBatchId().isDefined
    stateShape match {
      case Some(StateShape.Refused(why)) => refuseState(why)
      case None if !started && StateShape.obstacle(execution.sparkSession.sessionState.conf).isDefined =>
        StateShape.obstacle(execution.sparkSession.sessionState.conf).foreach(refuseState)
      case None if started || !QueryTables.plansPlainly(execution) =>
        refuse(s"how its $operator is planned is not known before its first batch of this run. Publish after that batch.")
      case _ =>
    }
  }
}

private[skewless] object QueryTables {
  val RememberedSwaps = 100

  /** The name of an operator that keeps state, if a streaming plan has one: the operators that Spark itself counts as stateful. */
  def statefulNode(plan: LogicalPlan): Option[String] = plan.collectFirst {
    case node @ (_: Aggregate | _: Deduplicate | _: DeduplicateWithinWatermark | _: Distinct | _: GlobalLimit)
        if node.isStreaming =>
      node.nodeName
    case node @ (_: FlatMapGroupsWithState | _: FlatMapGroupsInPandasWithState | _: TransformWithState |
        _: TransformWithStateInPySpark) if node.isStreaming =>
      node.nodeName
    case join: Join if join.left.isStreaming && join.right.isStreaming => "stream-stream join"
  }

  /** Whether a query that has planned nothing yet will be routed: provider and steps leave the planner no other choice. */
  def plansPlainly(execution: StreamExecution): Boolean =
    statefulNode(execution.analyzedPlan).isDefined &&
      StateShape.obstacle(execution.sparkSession.sessionState.conf).isEmpty &&
      !execution.analyzedPlan.exists {
        case join: Join => !(join.left.isStreaming && join.right.isStreaming)
        case aggregate: Aggregate => aggregate.groupingExpressions.isEmpty
        case _: Union | _: GlobalLimit => true
        case _ => false
      }
}
