// In Spark's package because it reads StreamExecution, which Spark keeps private.
package org.apache.spark.sql.skewless.query

import io.skewless.{SkewlessConf, SkewlessException}
import io.skewless.observe.{Application, LookAheadPace, PlanWait, Upcoming, Watching}
import io.skewless.table.{Left, Right, Side, Table}
import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.internal.SQLConf

/** A logical node whose exchange, of `n` partitions, takes the table of the running query. */
private[skewless] trait RoutedByTable { def n: Int }

/** How an exchange is routed: under which epoch, and by which table; none means Spark's own exchange. */
final case class ExchangeRouting(epoch: Long, table: Option[Table])

object ExchangeRouting {
  val Plain: ExchangeRouting = ExchangeRouting(0, None)
}

/** The tables before a batch and in it; none means plain hashing. */
private[skewless] final case class StateTables(before: Option[Table], after: Option[Table]) {
  def epoch: Long = after.fold(0L)(_.epoch)
  def tableBefore(n: Int): Table = sized(before, n)
  def tableAfter(n: Int): Table = sized(after, n)

  def moveState: Boolean = after.exists(!_.isEmpty) && before.map(_.epoch) != after.map(_.epoch)

  /** An empty table hashes plainly, whatever number it was made for: that may have changed since. */
  private def sized(table: Option[Table], n: Int): Table =
    table.fold(Table.empty(n))(t => if (t.isEmpty) Table.empty(n).withEpoch(t.epoch) else t)
}

/**
 * The tables of one run of one query: which one a micro-batch is routed by, and which batch a new one is
 * pinned to. The lock orders publishing and planning: a batch is never planned while it is being pinned.
 *
 * A table is published by writing it and then its pin, a file `batch -> epoch` for a batch that has not been
 * planned yet. Batch N runs under the epoch of the newest pin at or below N. Neither file is ever overwritten
 * and planning writes nothing, so planning a batch again - a retry, a restart, `explain` - finds the same
 * epoch.
 */
final class QueryTables private[query] (
    execution: StreamExecution,
    watching: => Option[Watching],
    attempt: Attempt
) extends Logging {
  private val handover = new Handover(execution)
  private val checks = new PublishChecks(execution, handover)
  private val pinLog = new PinLog(
    new Path(execution.resolvedCheckpointRoot),
    execution.id,
    execution.sparkSession,
    stateful = checks.statefulOperator.isDefined
  )
  private var lastPlanned = -1L
  // An earlier run may have planned up to here.
  private val inherited = execution.offsetLog.getLatestBatchId().getOrElse(-1L)
  private val planWait = new PlanWait(this, watching.fold(0L)(_.planWaitMs))
  private val pace = new LookAheadPace(watching.getOrElse(Watching()).lookShare)
  private var routedPartitions: Set[Int] =
    execution.analyzedPlan.collect { case node: RoutedByTable => node.n }.toSet

  /** What the last planning found of the query's stateful stages; nothing is known before the first. */
  private var stateShape: Option[StateShape] = None

  /** What the last batch that could tell showed of each side of the joins. */
  private var splitsOf: Map[Side, Splits] = Map.empty

  /** The batch of the empty table, if the query is released: after it the checkpoint is plain Spark's. */
  private var releasedIn: Option[Long] = None

  // -- planning -------------------------------------------------------------------------------------------

  /**
   * How an exchange of `n` partitions is routed in this batch. Called by the strategy, on the stream's
   * thread.
   */
  def routing(batchId: Long, n: Int): ExchangeRouting = synchronized {
    begin(batchId)
    routedPartitions += n
    pinLog.tableAt(batchId).fold(ExchangeRouting.Plain) { table =>
      if (table.partitions != n)
        logWarning(
          s"query ${execution.id}: the table of epoch ${table.epoch} is for ${table.partitions} " +
            s"partitions, an exchange of $n is hashed plainly"
        )
      ExchangeRouting(table.epoch, Some(table).filter(t => t.partitions == n && !t.isEmpty))
    }
  }

  /**
   * The tables before and in this batch, for a plan whose stateful stages are as `shape` says. State that a
   * table has placed must be read by that table: a plan that cannot stops the query.
   */
  private[skewless] def stateTables(batchId: Long, shape: StateShape): StateTables = synchronized {
    begin(batchId)
    if (stateShape.isEmpty)
      attempt("delete scratch of earlier runs")(pinLog.cleanOthers(execution.runId))
    stateShape = Some(known(shape))
    val tables =
      StateTables(if (batchId == 0) None else pinLog.tableAt(batchId - 1), pinLog.tableAt(batchId))
    (tables.before ++ tables.after).foreach(checkReadable(batchId, shape, _))
    if (tables.moveState) checkOwn(batchId, tables.epoch)
    if (releasedIn.exists(_ <= batchId)) handover.release(batchId)
    tables
  }

  /**
   * The shape of a batch, with what earlier ones showed of the sides of which it has too few rows to tell.
   */
  private[skewless] def known(shape: StateShape): StateShape = synchronized {
    shape match {
      case StateShape.Routable(n, splits) =>
        splitsOf ++= Seq(Left, Right).filterNot(splits.unsure).map(_ -> splits)
        val (seen, unseen) = splits.unsure.partition(splitsOf.contains)
        val refused = seen.filterNot(side => splitsOf(side).sides(side))
        val why = refused.headOption.fold(splits.why)(splitsOf(_).why)
        StateShape.Routable(n, Splits(splits.sides -- refused, why, unseen))
      case refused => refused
    }
  }

  /** State that a table places must never stand under another provider's name: see `Handover`. */
  private def checkOwn(batchId: Long, epoch: Long): Unit =
    handover.entry(batchId).filter(_ != Handover.Ours).foreach { provider =>
      throw SkewlessException.checkpoint(
        s"batch $batchId of query ${execution.id} is to move state by the table of epoch $epoch, and its " +
          s"entry of the offset log names $provider, which would not know of that. Nothing was moved; " +
          "restore the checkpoint from a copy."
      )
    }

  private def checkReadable(batchId: Long, shape: StateShape, table: Table): Unit = shape match {
    case StateShape.Refused(why) if !table.isEmpty =>
      throw SkewlessException.checkpoint(
        s"the state of query ${execution.id} lies by the table of epoch ${table.epoch}, and batch $batchId " +
          s"cannot be routed by it: $why. The query stops before any row is read."
      )
    case StateShape.Routable(n, _) if n != table.partitions && !table.isEmpty =>
      throw SkewlessException.checkpoint(
        s"the state of query ${execution.id} lies by the table of epoch ${table.epoch} in " +
          s"${table.partitions} partitions, batch $batchId has $n. Something changed the number behind " +
          "Skewless; restore the checkpoint from a copy."
      )
    case StateShape.Routable(_, splits) =>
      splits.obstacle(table).foreach { why =>
        throw SkewlessException.checkpoint(
          s"the state of query ${execution.id} lies by the table of epoch ${table.epoch}, and batch " +
            s"$batchId cannot be routed by it: $why. The query stops before any row is read; start it as " +
            "it was, or let Spark plan it as it did (a static join above it: with a broadcast hint)."
        )
      }
    case _ =>
  }

  /** From here on the batch has been planned: no table is pinned to it any more. */
  private def begin(batchId: Long): Unit = {
    if (mayWait(batchId)) planWait.await(batchId)
    if (batchId > lastPlanned) pinLog.checkAlone(batchId)
    lastPlanned = lastPlanned.max(batchId)
  }

  /** Nobody has planned the batch, in this run or an earlier one. */
  private def mayWait(batchId: Long): Boolean = lastPlanned >= 0 && batchId > lastPlanned.max(inherited)

  def decided(batchId: Long): Unit = synchronized(planWait.decided(batchId))

  // -- adopting and releasing -----------------------------------------------------------------------------

  /**
   * Takes the checkpoint over in the first batch of a run, if the setting says so and a table could level the
   * query. Tables of an earlier time may lie there: whoever released the query left an empty one in force.
   *
   * @param shape what the plan allows, whoever keeps the state
   */
  private[skewless] def adopt(batchId: Long, conf: SQLConf, shape: StateShape): Unit = synchronized {
    val isRoutable = shape.isInstanceOf[StateShape.Routable]
    // A routed repartition of the same batch may have been planned before its stateful stages.
    if (
      checks.adopts && isRoutable && stateShape.isEmpty && conf.stateStoreProviderClass == Handover.Sparks
    ) {
      val known = Seq(pinLog.tableAt(batchId - 1), pinLog.tableAt(batchId), pinLog.latest).flatten
      known.find(!_.isEmpty).foreach(refuseUnreleased(batchId, _))
      handover.adopt(batchId, conf)
    }
  }

  private def refuseUnreleased(batchId: Long, table: Table): Nothing = throw SkewlessException.checkpoint(
    s"query ${execution.id} cannot be adopted in batch $batchId: its checkpoint names Spark's provider, " +
      s"yet a table in force or waiting, epoch ${table.epoch}, moves ${table.size} keys. It was never " +
      "released, or files of different times were mixed. Restore the checkpoint from a copy; the query " +
      "stops before any row is read."
  )

  /**
   * Takes every key home and gives the checkpoint back: the batch in which that happens. From the batch after
   * it on a start needs no jar. Again gives the same batch.
   */
  def release(conf: SkewlessConf): Long = synchronized {
    releasedIn.getOrElse {
      checks.release()
      val batch = pinLog.latest.filterNot(_.isEmpty) match {
        case Some(table) => publish(Table.empty(table.partitions), conf)._2
        case None =>
          val started = execution.offsetLog.getLatestBatchId().getOrElse(-1L)
          (lastPlanned.max(started) + 1).max(pinLog.newestBatch)
      }
      releasedIn = Some(batch)
      batch
    }
  }

  // -- looking ahead --------------------------------------------------------------------------------------

  /**
   * Counts what a batch holds and shows it to the loop, if the loop wants to see that and it is worth it. The
   * lock is not held meanwhile: counting is a Spark job.
   */
  def lookAhead(batchId: Long)(count: Table => Option[Upcoming]): Unit =
    if (watching.exists(_.lookAhead)) {
      val isDue = synchronized(mayWait(batchId) && planWait.waits(batchId) && pace.due(batchId))
      if (isDue)
        pace.timed(attempt("look ahead: the batch is routed by what was before it")(show(batchId, count)))
      if (isDue && !execution.isActive)
        throw new InterruptedException("the query was stopped while it looked ahead")
    }

  private def show(batchId: Long, count: Table => Option[Upcoming]): Unit = {
    val (started, known) = (System.nanoTime(), synchronized(pinLog.tableAt(batchId)))
    for {
      application <- Application.of(execution.sparkSession.sparkContext)
      found <- stateShape
        .collect { case StateShape.Routable(n, _) => known.getOrElse(Table.empty(n)) }
        .flatMap(count)
    } {
      synchronized(planWait.shown(batchId))
      val lookMs = (System.nanoTime() - started) / 1000000
      application.listener.show(execution.id.toString, batchId, found, lookMs)
    }
  }

  // -- publishing -----------------------------------------------------------------------------------------

  /** Stores a table and pins the next unplanned batch to it: (epoch, batch). */
  def publish(table: Table, conf: SkewlessConf): (Long, Long) = synchronized {
    releasedIn.foreach(checks.refuseReleased)
    checks(table, routedPartitions, stateShape, hasPlanned = lastPlanned >= 0)
    conf.checkSize(table.size)
    val startedBatch = execution.offsetLog.getLatestBatchId().getOrElse(-1L)
    val planned = if (planWait.isOpen(startedBatch)) startedBatch - 1 else startedBatch
    val pinned = pinLog.add(table, notBefore = lastPlanned.max(planned) + 1)
    if (planned < startedBatch) pace.paid()
    attempt("purge old tables")(execution.offsetLog.listBatchesOnDisk.minOption.foreach(pinLog.purge))
    pinned
  }

  /** Waits for what the last publish leaves beside the state: before a task may place a row by that table. */
  private[skewless] def settle(): Unit = pinLog.settle()

  /** Why this run will take no table, as far as it is known by now. */
  def obstacle(hasCommitted: Boolean): Option[String] =
    synchronized(checks.obstacle(routedPartitions, stateShape, hasCommitted))

  /** The newest table, pinned or in force. */
  def latest: Option[Table] = synchronized(pinLog.latest)

  def keepsNoState: Boolean = checks.statefulOperator.isEmpty

  /** How many partitions the state lies in, once a batch of this run has been planned. */
  def statePartitions: Option[Int] = synchronized(stateShape.collect { case StateShape.Routable(n, _) => n })

  def tableAt(batchId: Long): Option[Table] = synchronized(pinLog.tableAt(batchId))

  // -- after a batch --------------------------------------------------------------------------------------

  def committed(batchMs: Long): Unit = pace.batchMs = batchMs

  /**
   * Writes down what a swap did, and deletes the files that its state travelled in. Without the lock, which
   * the planner of the next batch needs.
   */
  def swapped(swap: SwapRecord): Unit = {
    attempt("record a swap")(pinLog.record(swap))
    if (swap.files > 0) cleanScratch(before = swap.batch + 1)
  }

  def cleanScratch(before: Long): Unit = {
    attempt("delete scratch")(pinLog.clean(execution.runId, before))
    ()
  }
}
