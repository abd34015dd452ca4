// In Spark's package because it reads physical plans of stateful queries.
package org.apache.spark.sql.skewless.split

import io.skewless.table.{Left, Right, Side}
import org.apache.spark.sql.catalyst.plans.{Inner, LeftOuter, LeftSemi, RightOuter}
import org.apache.spark.sql.catalyst.plans.physical.{BroadcastDistribution, UnspecifiedDistribution}
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SparkPlan}
import org.apache.spark.sql.execution.exchange.{Exchange, ShuffleExchangeExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec

/** The exchanges of a stage's join, whose keys may be split. */
private[skewless] final case class SplittableJoin(left: Exchange, right: Exchange, sides: Set[Side]) {
  def side(exchange: Exchange): Option[Side] =
    if (exchange eq left) Some(Left) else if (exchange eq right) Some(Right) else None

  /**
   * Whether the content of a side's rows decides where they go; None in a batch that has no rows of a source
   * of the side, as Spark then leaves its steps out of the plan. Else mappers take turns, and a run with
   * other mappers deals rows out otherwise: in checkpoint format 1 a task of an earlier run that commits late
   * would then leave the state of a partition wrong, in silence.
   */
  def choosesByContent(side: Side): Option[Boolean] = {
    val input = (if (side == Left) left else right).child
    if (RepeatableInput.content(input).isEmpty) Some(false)
    else Option.when(!RepeatableInput.lacksRows(input))(true)
  }
}

/**
 * Finds out whether the keys of a stage may be split: it must be one stream-stream join, read from an
 * exchange on each side, with nothing above it that asks for a key in one place.
 */
private[skewless] object SplittableJoin {

  /** The join of the stage under `top`, or why no key of the stage may be split. */
  def of(top: SparkPlan, nodes: Seq[SparkPlan], exchanges: Seq[Exchange]): Either[String, SplittableJoin] =
    nodes.collect { case writer: StateStoreWriter => writer } match {
      case Seq(join: StreamingSymmetricHashJoinExec) => ofJoin(top, join, exchanges)
      case Seq(other: SparkPlan) => no(s"its ${other.nodeName} keeps one state per key")
      case several =>
        val names = several.collect { case plan: SparkPlan => plan.nodeName }
        no(s"${names.mkString(" and ")} read one shuffle, and a split serves a join alone")
    }

  private def ofJoin(
      top: SparkPlan,
      join: StreamingSymmetricHashJoinExec,
      exchanges: Seq[Exchange]
  ): Either[String, SplittableJoin] = for {
    allowed <- sides(join)
    left <- exchange(join.left)
    right <- exchange(join.right)
    _ <- Either.cond(
      exchanges.forall(e => (e eq left) || (e eq right)),
      (),
      "another join reads the same keys without a shuffle of its own"
    )
    _ <- above(top, join).collectFirst { case (node, child) if !takesAnyPlace(node, child) => node } match {
      case Some(node) =>
        no(
          s"its ${node.nodeName} above the join needs all rows of a key in one place, and there is no " +
            "shuffle between"
        )
      case None => scala.Right(())
    }
  } yield SplittableJoin(left, right, allowed)

  private def no(why: String) = scala.Left(why)

  /** A side whose rows without a partner are given out must meet all rows of the other side in one place. */
  private def sides(join: StreamingSymmetricHashJoinExec): Either[String, Set[Side]] = join.joinType match {
    case Inner => scala.Right(Set(Left, Right))
    case LeftOuter | LeftSemi => scala.Right(Set(Left))
    case RightOuter => scala.Right(Set(Right))
    case other => no(s"a ${other.sql.toLowerCase} join of streams must see all rows of a key in one place")
  }

  /** Steps between shuffle and join must treat all copies of a row alike. */
  private def exchange(plan: SparkPlan): Either[String, Exchange] = plan match {
    case exchange: ShuffleExchangeExec => scala.Right(exchange)
    case step @ (_: ProjectExec | _: FilterExec) if step.expressions.forall(_.deterministic) =>
      exchange(step.children.head)
    case other => no(s"${other.nodeName} stands between the shuffle and the join")
  }

  /** The nodes above the join up to the top of the stage, each with the child that leads to it. */
  private def above(top: SparkPlan, join: SparkPlan): Seq[(SparkPlan, SparkPlan)] =
    if (top eq join) Nil
    else
      top.children
        .find(_.exists(_ eq join))
        .fold(Seq.empty[(SparkPlan, SparkPlan)])(child => (top, child) +: above(child, join))

  private def takesAnyPlace(node: SparkPlan, child: SparkPlan): Boolean =
    node.requiredChildDistribution.zip(node.children).forall {
      case (UnspecifiedDistribution, _) => true
      case (_: BroadcastDistribution, other) => other ne child
      case _ => false
    }
}
