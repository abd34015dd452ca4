// In Spark's package because it reads physical plans of stateful queries.
package org.apache.spark.sql.skewless.route

import io.skewless.table.{Left, Right, Side}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, RebalancePartitions, RepartitionByExpression}
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioning, SinglePartition}
import org.apache.spark.sql.execution.{LeafExecNode, SparkPlan}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.execution.exchange.{BroadcastExchangeLike, Exchange, ShuffleExchangeExec}
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  StateStoreWriter,
  StatefulOperatorStateInfo
}
import org.apache.spark.sql.execution.streaming.operators.stateful.{flatmapgroupswithstate => groups}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.query.{RoutedByTable, Splits, StateShape}
import org.apache.spark.sql.skewless.split.SplittableJoin
import org.apache.spark.sql.skewless.state.AnyProvider

/**
 * The nodes between exchanges, from `top` down; the exchanges they read; the stateful operators among them.
 */
private[skewless] final case class StatefulStage(
    top: SparkPlan,
    nodes: Seq[SparkPlan],
    exchanges: Seq[Exchange]
) {

  val operators: Seq[StatefulOperatorStateInfo] = nodes.collect {
    case writer: StateStoreWriter if AnyProvider.isStreaming(writer) && writer.stateInfo.isDefined =>
      writer.getStateInfo
  }

  /**
   * The number of partitions that a table routes over; None where all rows meet in one partition and nothing
   * can move.
   */
  val partitions: Option[Int] =
    exchanges.map(_.outputPartitioning).collectFirst { case hash: HashPartitioning => hash.numPartitions }

  /** The join whose keys may be split, or why none may. */
  lazy val splittable: Either[String, SplittableJoin] = SplittableJoin.of(top, nodes, exchanges)

  def side(exchange: Exchange): Option[Side] = splittable.toOption.flatMap(_.side(exchange))

  def splits(conf: SQLConf): Splits = splittable.fold(
    Splits.none,
    join => {
      val late = conf.stateStoreCheckpointFormatVersion < 2 // a late task's file would count
      val content =
        join.sides.map(side => side -> (if (late) join.choosesByContent(side) else Some(true))).toMap
      val allowed = join.sides.filter(!content(_).contains(false))
      val unsure = join.sides.filter(content(_).isEmpty)
      if (allowed == join.sides)
        Splits(
          allowed,
          s"its join allows that on the ${allowed.map(_.name).mkString(" or ")} side only",
          unsure
        )
      else
        Splits(
          allowed,
          "its rows may differ between two attempts (user code, another shuffle or an unknown source below " +
            "it), which is safe in checkpoint format 2 only: start it on a new checkpoint with " +
            s"${SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key}=2",
          unsure
        )
    }
  )

  /** Why the stage cannot be routed, if it cannot. */
  def obstacle: Option[String] = {
    val foreign = exchanges.collectFirst {
      case other if !other.isInstanceOf[ShuffleExchangeExec] =>
        s"another plugin plans its exchange as ${other.getClass.getName}"
    }
    val unequal = exchanges.map(_.outputPartitioning).flatMap {
      case SinglePartition if partitions.isEmpty => None
      case routed: RoutedPartitioning if !routed.table.isEmpty =>
        Some("the stage that keeps its state also reads rows that a table of their own routes")
      case hash: HashPartitioning if partitions.contains(hash.numPartitions) => None
      case other =>
        Some(s"the stage that keeps its state also reads rows placed by $other, which no table can route")
    }
    val leaf = nodes.collectFirst {
      case leaf: LeafExecNode if partitions.exists(_ > 1) =>
        s"the stage that keeps its state also reads ${leaf.nodeName} without a shuffle, and only shuffled " +
          "rows can be routed"
    }
    foreign.orElse(unequal.headOption).orElse(leaf).orElse(joinFormat)
  }

  /** Format 4 keeps a key's rows of one time as one value, in families that nothing here can take apart. */
  private def joinFormat: Option[String] = nodes.collectFirst {
    case join: StreamingSymmetricHashJoinExec if join.stateFormatVersion > StatefulStage.NewestJoinFormat =>
      s"its join has state format ${join.stateFormatVersion}, which Skewless cannot move. Start it on a new " +
        s"checkpoint with ${SQLConf.STREAMING_JOIN_STATE_FORMAT_VERSION.key}=${StatefulStage.NewestJoinFormat}"
  }
}

private[skewless] object StatefulStage {
  private val NewestJoinFormat = 3
  private val AllMeet =
    "all rows of its stateful step meet in one partition. Only a step that is grouped by a key can be " +
      "levelled"

  /** Every stage of a plan that keeps state. */
  def of(plan: SparkPlan): Seq[StatefulStage] = all(plan).filter(_.operators.nonEmpty)

  /**
   * What the stages of a plan allow together: one table serves them all, or none does.
   *
   * @param query the plan as the user wrote it
   */
  def shape(plan: SparkPlan, stages: Seq[StatefulStage], conf: SQLConf, query: LogicalPlan): StateShape =
    ofPlan(plan, stages, conf, query) match {
      case routable: StateShape.Routable =>
        StateShape.obstacle(conf).fold[StateShape](routable)(StateShape.Refused(_))
      case refused => refused
    }

  /** The same, whoever keeps the state. */
  def ofPlan(plan: SparkPlan, stages: Seq[StatefulStage], conf: SQLConf, query: LogicalPlan): StateShape = {
    val strict = SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION
    plan
      .collectFirst { case _: AdaptiveSparkPlanExec => "it is planned adaptively" }
      .orElse(
        Option.when(!conf.getConf(strict))(
          s"${strict.key} is false, so its state does not lie by the operator's full key"
        )
      )
      .orElse(stages.flatMap(_.obstacle).headOption)
      .map(StateShape.Refused(_))
      .getOrElse {
        stages
          .flatMap(_.partitions)
          .headOption
          .fold[StateShape](StateShape.Refused(AllMeet))(
            StateShape.Routable(_, stages.map(_.splits(conf)).reduce(_ and _).and(asWritten(query)))
          )
      }
  }

  /**
   * Spark leaves out a repartition by the key that the join's shuffle makes superfluous; with a split it
   * would not be, and no trace of it is left in the physical plan.
   */
  private def asWritten(query: LogicalPlan): Splits = query
    .collectFirst {
      case node @ (_: RepartitionByExpression | _: RebalancePartitions | _: RoutedByTable)
          if node.exists(inner => StateShape.isJoin(inner)) =>
        Splits.none(s"its ${node.nodeName} above the join needs all rows of a key in one place")
    }
    .getOrElse(Splits(Set(Left, Right), ""))

  private def all(plan: SparkPlan): Seq[StatefulStage] = {
    def nodes(p: SparkPlan): Seq[SparkPlan] =
      if (p.isInstanceOf[Exchange]) Seq(p) else p +: inputs(p).flatMap(nodes)
    val (edges, inside) = nodes(plan).partition(_.isInstanceOf[Exchange])
    val exchanges = edges.map(_.asInstanceOf[Exchange])
    val stage = StatefulStage(plan, inside, exchanges.filterNot(_.isInstanceOf[BroadcastExchangeLike]))
    stage +: exchanges.flatMap(_.children).flatMap(all)
  }

  /**
   * The children that a node reads: without an initial state, the second child of an operator that could have
   * one is a dummy.
   */
  private def inputs(plan: SparkPlan): Seq[SparkPlan] = plan match {
    case node: TransformWithStateExec if !node.hasInitialState => Seq(node.child)
    case node: TransformWithStateInPySparkExec if !node.hasInitialState => Seq(node.child)
    case node: groups.FlatMapGroupsWithStateExec if !node.hasInitialState => Seq(node.child)
    case other => other.children
  }
}
