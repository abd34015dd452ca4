// In Spark's package because it reads physical plans of stateful queries.
package org.apache.spark.sql.skewless.route

import io.skewless.{SkewlessConf, SkewlessException}
import io.skewless.moves.Chunk
import io.skewless.observe.{Application, JoinInput, KeyCounts}
import io.skewless.table.{Right, SharedTable, Side, Table}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.exchange.{Exchange, ShuffleExchangeExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  StateStoreWriter,
  StatefulOperatorStateInfo
}
import org.apache.spark.sql.skewless.placement.PlacementWishes
import org.apache.spark.sql.skewless.query.{
  PinLog,
  QueryRegistry,
  QueryRun,
  RunningBatch,
  StateShape,
  StateTables
}
import org.apache.spark.sql.skewless.state.{MovesBy, StateMark, StateMeasure, StateSwap, SwappingRun}
import org.apache.spark.util.SerializableConfiguration

/**
 * What one micro-batch is routed by, and where its tasks should run: decided before its plan is rewritten. A
 * value: `RouteStatefulStages` reads it and nothing else.
 */
private[skewless] final case class BatchRouting(
    queryId: String,
    batchId: Long,
    epoch: Long,
    stages: Seq[StageRouting],
    wishes: Option[PlacementWishes]
)

/** How one stage is routed: the mark for its tasks, the move of its state, and what is measured of it. */
private[skewless] final case class StageRouting(
    stage: StatefulStage,
    mark: StateMark,
    swap: Option[StateSwap],
    measure: Option[StateMeasure],
    inputs: Seq[RoutedInput]
)

/**
 * How one exchange that feeds a stage is routed; an exchange without one of these stays Spark's own.
 *
 * @param side the side of a join that it feeds
 */
private[skewless] final case class RoutedInput(
    exchange: Exchange,
    side: Option[Side],
    table: SharedTable,
    counts: Option[KeyCounts]
)

/**
 * Plans the stateful stages of each micro-batch. Runs on the driver, on the stream's thread, after Spark has
 * placed its exchanges and numbered its operators. All that planning does besides rewriting the plan is done
 * here, in this order:
 *
 *  - adopt: a run's first batch takes its checkpoint over from Spark's provider, if a setting says so;
 *  - look: the batch's own keys are counted, in a job, if a loop wants to see them;
 *  - wait: for the loop to decide, for a bounded time;
 *  - settle: the batch is planned from here on, and its tables are those that were pinned to it;
 *  - announce: accumulators for the keys and the state of watched queries.
 */
private[skewless] case class PrepareBatch(session: SparkSession) extends Rule[SparkPlan] {

  override def apply(plan: SparkPlan): SparkPlan =
    routing(plan).fold(plan)(RouteStatefulStages(_).apply(plan))

  private def routing(plan: SparkPlan): Option[BatchRouting] = {
    val stages = if (plan.exists(_.isInstanceOf[StateStoreWriter])) StatefulStage.of(plan) else Nil
    if (stages.isEmpty) None
    else
      RunningBatch.current(session).flatMap { batch =>
        if (batch.isRealTime) { refuseOurs(batch); None }
        else routing(plan, stages, batch)
      }
  }

  /** Real-Time Mode ends its batches before they are logged, and what a batch that failed has read is read anew. */
  private def refuseOurs(batch: RunningBatch): Unit =
    if (StateShape.keepsOurs(session.sessionState.conf))
      throw SkewlessException.query(
        s"$batch runs in Real-Time Mode, and its state is kept by Skewless, whose keys move between " +
          "micro-batches. Nothing was read. Use a processing-time or available-now trigger; or release the query " +
          "(`skewless release CHECKPOINT`), and start it without Skewless's provider."
      )

  private def routing(
      plan: SparkPlan,
      stages: Seq[StatefulStage],
      batch: RunningBatch
  ): Option[BatchRouting] = {
    val (run, conf) = (QueryRegistry.run(batch), session.sessionState.conf)
    val written = batch.execution.analyzedPlan
    run.tables.adopt(batch.batchId, conf, StatefulStage.ofPlan(plan, stages, conf, written))
    val shape = StatefulStage.shape(plan, stages, conf, written)
    val sides = run.tables.known(shape).sides
    val inputs = stages.flatMap(stage => stage.exchanges.map(e => e -> stage.side(e)))
    run.tables.lookAhead(batch.batchId) { table =>
      LookAhead.count(inputs, table, session, batch).map(_.copy(sides = sides))
    }
    val tables = run.tables.stateTables(batch.batchId, shape)
    Option.when(StateShape.keepsOurs(conf))(
      BatchRouting(
        batch.queryId.toString,
        batch.batchId,
        tables.epoch,
        stages.map(routing(_, tables, sides, batch, run)),
        Some(run.wishes).filterNot(_.isEmpty)
      )
    )
  }

  private def routing(
      stage: StatefulStage,
      tables: StateTables,
      sides: String,
      batch: RunningBatch,
      run: QueryRun
  ): StageRouting = {
    stage.operators.foreach(checkVersion(_, batch))
    val table = tables.after.filter(t => stage.partitions.isDefined && !t.isEmpty)
    StageRouting(
      stage,
      StateMark(
        stage.operators.head.checkpointLocation,
        batch.batchId,
        stage.operators.map(_.operatorId).toSet
      ),
      stage.partitions.map(n => swap(stage, tables.tableBefore(n), tables.tableAfter(n), batch, run)),
      for {
        _ <- stage.partitions
        _ <- run.watching
        measure <- run.stateBytes.measure(batch, session, stage.operators, table)
      } yield measure,
      stage.exchanges.flatMap(e => input(e, stage.side(e), sides, table, batch, run))
    )
  }

  private def swap(
      stage: StatefulStage,
      before: Table,
      after: Table,
      batch: RunningBatch,
      run: QueryRun
  ): StateSwap = {
    val swapping = new SwappingRun {
      override def exported(keyHashes: Int, moved: Seq[Chunk], millis: Long): Unit =
        run.swaps.exported(batch.batchId, keyHashes, moved, millis)
      override def hadoop: Broadcast[SerializableConfiguration] = run.hadoop
      override def settle(): Unit = run.tables.settle()
    }
    val conf = Application.of(session.sparkContext).fold(new SkewlessConf(Map.empty))(_.conf)
    val way = MovesBy(PinLog.scratch(batch), conf.carriedBytes)
    new StateSwap(session, stage.operators, before, after, batch.batchId, way, swapping)
  }

  /** None where there is nothing to route by and nobody who wants the keys counted. */
  private def input(
      exchange: Exchange,
      side: Option[Side],
      sides: String,
      table: Option[Table],
      batch: RunningBatch,
      run: QueryRun
  ): Option[RoutedInput] = exchange match {
    case shuffle: ShuffleExchangeExec =>
      shuffle.outputPartitioning match {
        case hash: HashPartitioning =>
          val counts = run.keyCounts(batch.batchId, JoinInput(side.contains(Right), sides))
          Option.when(table.isDefined || counts.isDefined) {
            val routed = table.getOrElse(Table.empty(hash.numPartitions))
            RoutedInput(exchange, side, SharedTable(routed, session.sparkContext), counts)
          }
        case _ => None
      }
    case _ => None
  }

  private def checkVersion(info: StatefulOperatorStateInfo, batch: RunningBatch): Unit =
    if (info.storeVersion != batch.batchId)
      throw SkewlessException.version(
        s"operator ${info.operatorId} reads state version ${info.storeVersion} in $batch, Skewless knows " +
          "only versions that count batches. Use a Spark that this release serves."
      )
}
