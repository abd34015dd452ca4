// In Spark's package because it rewrites physical plans of stateful queries.
package org.apache.spark.sql.skewless

import io.skewless.Table
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioning, SinglePartition}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{LeafExecNode, SparkPlan}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.execution.exchange.{BroadcastExchangeLike, Exchange, ShuffleExchangeExec}
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.{StateStoreWriter, StatefulOperatorStateInfo}
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.internal.SQLConf

/**
 * Routes the exchanges that feed stateful operators by the table of the micro-batch. Runs on the driver for each micro-batch, after
 * Spark has placed its exchanges and numbered its operators.
 *
 * A stage - the nodes between exchanges - that keeps state is routed whole: the exchange that feeds the operator, and every other hash
 * exchange that the stage reads, such as the static side of a join with the operator's result. Spark dropped shuffles because those
 * fitted together under plain hashing; under one table for all they still do. A stage that cannot be routed whole is not routed.
 */
private[skewless] case class RoutedState(session: SparkSession) extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (!plan.exists(_.isInstanceOf[StateStoreWriter])) plan
    else RunningBatch.current(session).fold(plan)(batch => new StatefulPlan(plan, batch, session).routed)
}

/** What a plan's stateful stages allow: a table for `partitions`, or, with a reason, none. */
private[skewless] sealed trait StateShape
private[skewless] object StateShape {

  /** Why a state store provider rules tables out, if it does. */
  def obstacle(conf: SQLConf): Option[String] = Option.when(conf.stateStoreProviderClass != StatefulPlan.Provider)(
    s"its checkpoint keeps it with ${conf.stateStoreProviderClass}, which cannot move it. A query takes the provider of its first " +
      "start for good: start it on a new checkpoint, in a session from skewless.configure(builder)"
  )
  final case class Routable(partitions: Int) extends StateShape
  final case class Refused(why: String) extends StateShape
}

private final class StatefulPlan(plan: SparkPlan, batch: RunningBatch, session: SparkSession) {
  import StateShape.{Refused, Routable}

  private val conf = session.sessionState.conf
  private val stages = Stage.of(plan).filter(_.operators.nonEmpty)

  def routed: SparkPlan =
    if (stages.isEmpty) plan
    else {
      RunningQueries.lookAhead(batch)(LookAhead.count(stages.flatMap(_.exchanges), _, session, batch))
      val tables = RunningQueries.stateTables(batch, shape)
      if (conf.stateStoreProviderClass == StatefulPlan.Provider)
        rewrite(plan, stages.map(s => s.top -> new Marked(s, tables)).toMap)
      else plan
    }

  private def shape: StateShape = {
    val reason = plan
      .collectFirst { case _: AdaptiveSparkPlanExec => "it is planned adaptively" }
      .orElse(StateShape.obstacle(conf))
      .orElse(
        Option.when(!conf.getConf(SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION))(
          s"${SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION.key} is false, so its state does not lie by the operator's full key"
        )
      )
      .orElse(stages.flatMap(_.obstacle).headOption)
    reason.map(Refused(_)).getOrElse {
      stages
        .flatMap(_.partitions)
        .headOption
        .fold[StateShape](Refused("all rows of its stateful step meet in one partition"))(Routable(_))
    }
  }

  /** What becomes of one stage: its exchanges routed, its input marked, its operators told that any provider will do. */
  private final class Marked(stage: Stage, tables: StateTables) {
    private val root = stage.operators.head.checkpointLocation
    private val mark = StateMark(root, batch.batchId, stage.operators.map(_.operatorId).toSet)
    private val table = tables.after.filter(t => stage.partitions.isDefined && !t.isEmpty)
    stage.operators.foreach(StateSwap.check(_, batch))
    private val swap = stage.partitions.map { n =>
      new StateSwap(session, stage.operators, tables.tableBefore(n), tables.tableAfter(n), batch)
    }

    private val measure = stage.partitions.flatMap(_ => RunningQueries.measure(batch, session, stage.operators, table))

    def input(node: SparkPlan): SparkPlan = node match {
      case exchange: ShuffleExchangeExec =>
        StateSwapExec(mark, swap, measure, RoutedReadExec(batch.queryId.toString, batch.batchId, tables.epoch, route(exchange)))
      case other => StateSwapExec(mark, swap, measure, other)
    }

    /** Stays Spark's own exchange where there is nothing to route by and nobody who wants its keys counted. */
    private def route(exchange: ShuffleExchangeExec): SparkPlan = exchange.outputPartitioning match {
      case hash: HashPartitioning =>
        val counts = RunningQueries.keyCounts(batch, session.sparkContext)
        if (table.isEmpty && counts.isEmpty) exchange
        else {
          val shared = SharedTable(table.getOrElse(Table.empty(hash.numPartitions)), session.sparkContext)
          exchange.transformExpressions { case h: HashPartitioning =>
            new RoutedPartitioning(h.expressions, h.numPartitions, shared, None, counts)
          }
        }
      case _ => exchange
    }

    def marksLeaves: Boolean = stage.exchanges.isEmpty
  }

  private def rewrite(plan: SparkPlan, marked: Map[SparkPlan, Marked]): SparkPlan = {
    def stage(top: SparkPlan): SparkPlan = node(top, marked.collectFirst { case (p, m) if p eq top => m })
    def node(plan: SparkPlan, mark: Option[Marked]): SparkPlan = plan match {
      case exchange: BroadcastExchangeLike => exchange.mapChildren(stage)
      case exchange: Exchange =>
        val inner = exchange.mapChildren(stage)
        mark.fold(inner)(_.input(inner))
      case read: RoutedReadExec if mark.isDefined => node(read.child, mark) // counted anew, with the stage
      case leaf: LeafExecNode => mark.filter(_.marksLeaves).fold[SparkPlan](leaf)(_.input(leaf))
      case other => AnyProvider(other.mapChildren(node(_, mark)))
    }
    stage(plan)
  }
}

private object StatefulPlan {
  val Provider: String = classOf[SkewlessStateStoreProvider].getName
}

/** The nodes between exchanges, from `top` down; the exchanges they read; the stateful operators among them. */
private final case class Stage(top: SparkPlan, nodes: Seq[SparkPlan], exchanges: Seq[Exchange]) {

  val operators: Seq[StatefulOperatorStateInfo] = nodes.collect {
    case writer: StateStoreWriter if AnyProvider.isStreaming(writer) && writer.stateInfo.isDefined => writer.getStateInfo
  }

  /** The number of partitions that a table routes over; None where all rows meet in one partition and nothing can move. */
  val partitions: Option[Int] =
    exchanges.map(_.outputPartitioning).collectFirst { case hash: HashPartitioning => hash.numPartitions }

  /** Why the stage cannot be routed, if it cannot. */
  def obstacle: Option[String] = {
    val foreign = exchanges.collectFirst {
      case other if !other.isInstanceOf[ShuffleExchangeExec] => s"another plugin plans its exchange as ${other.getClass.getName}"
    }
    val unequal = exchanges.map(_.outputPartitioning).flatMap {
      case SinglePartition if partitions.isEmpty => None
      case routed: RoutedPartitioning if !routed.table.isEmpty =>
        Some("the stage that keeps its state also reads rows that a table of their own routes")
      case hash: HashPartitioning if partitions.contains(hash.numPartitions) => None
      case other => Some(s"the stage that keeps its state also reads rows placed by $other, which no table can route")
    }
    val leaf = nodes.collectFirst {
      case leaf: LeafExecNode if partitions.exists(_ > 1) =>
        s"the stage that keeps its state also reads ${leaf.nodeName} without a shuffle, and only shuffled rows can be routed"
    }
    foreign.orElse(unequal.headOption).orElse(leaf)
  }
}

private object Stage {

  /** Every stage of a plan. */
  def of(plan: SparkPlan): Seq[Stage] = {
    def nodes(p: SparkPlan): Seq[SparkPlan] = if (p.isInstanceOf[Exchange]) Seq(p) else p +: inputs(p).flatMap(nodes)
    val (edges, inside) = nodes(plan).partition(_.isInstanceOf[Exchange])
    val exchanges = edges.map(_.asInstanceOf[Exchange])
    Stage(plan, inside, exchanges.filterNot(_.isInstanceOf[BroadcastExchangeLike])) +: exchanges.flatMap(_.children).flatMap(of)
  }

  /** The children that a node reads: without an initial state, the second child of an operator that could have one is a dummy. */
  private def inputs(plan: SparkPlan): Seq[SparkPlan] = plan match {
    case node: TransformWithStateExec if !node.hasInitialState => Seq(node.child)
    case node: TransformWithStateInPySparkExec if !node.hasInitialState => Seq(node.child)
    case node: FlatMapGroupsWithStateExec if !node.hasInitialState => Seq(node.child)
    case other => other.children
  }
}
