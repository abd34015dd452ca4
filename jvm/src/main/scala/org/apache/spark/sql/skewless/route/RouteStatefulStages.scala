// In Spark's package because it rewrites physical plans of stateful queries.
package org.apache.spark.sql.skewless.route

import io.skewless.table.Side
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{LeafExecNode, SparkPlan}
import org.apache.spark.sql.execution.exchange.{BroadcastExchangeLike, Exchange, ShuffleExchangeExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.skewless.placement.PlacedStageExec
import org.apache.spark.sql.skewless.split.{RepeatableInput, SpreadExec, SpreadPartitioning}
import org.apache.spark.sql.skewless.state.{AnyProvider, StateSwapExec}

/**
 * Routes the exchanges that feed stateful operators by the table of the micro-batch. A function of the plan
 * and of `routing`, which `PrepareBatch` makes: it starts no job, waits for nothing, writes nothing.
 *
 * A stage - the nodes between exchanges - that keeps state is routed whole: the exchange that feeds the
 * operator, and every other hash exchange that the stage reads, such as the static side of a join with the
 * operator's result. Spark dropped shuffles because those fitted together under plain hashing; under one
 * table for all they still do. A stage that cannot be routed whole is not routed.
 */
private[skewless] case class RouteStatefulStages(routing: BatchRouting) extends Rule[SparkPlan] {

  override def apply(plan: SparkPlan): SparkPlan = stage(plan)

  private def stage(top: SparkPlan): SparkPlan = node(top, routing.stages.find(_.stage.top eq top))

  private def node(plan: SparkPlan, of: Option[StageRouting], isPlaced: Boolean = false): SparkPlan =
    plan match {
      case exchange: BroadcastExchangeLike => exchange.mapChildren(stage)
      case exchange: Exchange =>
        val inner = exchange.mapChildren(stage)
        of.fold(inner)(stage => input(stage, inner, stage.inputs.find(_.exchange eq exchange)))
      case read: RoutedReadExec if of.isDefined =>
        node(read.child, of, isPlaced) // counted anew, with the stage
      case leaf: LeafExecNode =>
        of.filter(_.stage.exchanges.isEmpty).fold[SparkPlan](leaf)(input(_, leaf, None))
      case writer: StateStoreWriter if of.isDefined && !isPlaced => // the topmost of its stage
        val whole = AnyProvider(writer.mapChildren(node(_, of, isPlaced = true)))
        routing.wishes.fold(whole)(PlacedStageExec(_, whole))
      case other => AnyProvider(other.mapChildren(node(_, of, isPlaced)))
    }

  /** What feeds a stage: its exchange routed, its reader counted, its tasks marked. */
  private def input(of: StageRouting, node: SparkPlan, routed: Option[RoutedInput]): SparkPlan = {
    val read = node match {
      case exchange: ShuffleExchangeExec =>
        RoutedReadExec(routing.queryId, routing.batchId, routing.epoch, routed.fold(node)(route(exchange, _)))
      case other => other
    }
    StateSwapExec(of.mark, of.swap, of.measure, read)
  }

  private def route(exchange: ShuffleExchangeExec, by: RoutedInput): SparkPlan =
    by.side.filter(_ => by.table.table.hasSplits).fold(move(exchange, by))(spread(exchange, by, _))

  private def move(exchange: ShuffleExchangeExec, by: RoutedInput): SparkPlan =
    exchange.transformExpressions { case hash: HashPartitioning =>
      new RoutedPartitioning(hash.expressions, hash.numPartitions, by.table, None, by.counts)
    }

  /** With splits in the table each row is emitted below the exchange, once for each partition it goes to. */
  private def spread(exchange: ShuffleExchangeExec, by: RoutedInput, side: Side): SparkPlan =
    exchange.outputPartitioning match {
      case hashing: HashPartitioning =>
        val hash = RoutedPartitioning.keyHash(hashing.partitionIdExpression, hashing.numPartitions)
        val content = RepeatableInput.content(exchange.child)
        exchange.copy(
          outputPartitioning =
            new SpreadPartitioning(hashing.expressions, hashing.numPartitions, by.table, side),
          child = SpreadExec(hash, hashing.expressions, by.table, side, content, by.counts, exchange.child)
        )
      case other => throw new IllegalStateException(s"a join's rows are placed by $other")
    }
}
