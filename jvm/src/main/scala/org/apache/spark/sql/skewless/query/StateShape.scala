// In Spark's package because it reads logical plans and StreamExecution, which are private.
package org.apache.spark.sql.skewless.query

import io.skewless.SkewlessConf
import io.skewless.table.{Left, Right, Side, Table}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.internal.SQLConf

/** What a plan's stateful stages allow: a table for `partitions`, or, with a reason, none. */
private[skewless] sealed trait StateShape {

  /** Which sides of its joins a split may spread, in one word. */
  def sides: String = this match {
    case StateShape.Routable(_, splits) => splits.name
    case _ => ""
  }
}

/**
 * Which sides a split may spread, of the joins that keep a plan's state: what all of them allow.
 *
 * @param why    what keeps the other sides whole, for whoever asks for them
 * @param unsure of these sides, those of which the batch that was looked at had too few rows to tell
 */
private[skewless] final case class Splits(sides: Set[Side], why: String, unsure: Set[Side] = Set.empty) {

  /** Why a table cannot be taken, if a split of it spreads a side that must stay whole. */
  def obstacle(table: Table): Option[String] = table.splitGrids.collectFirst {
    case (hash, split) if !Seq(Left, Right).filter(split.width(_) > 1).forall(sides) =>
      val spread = Seq(Left, Right).filter(split.width(_) > 1).map(_.name).mkString(" and the ")
      s"the table splits key hash $hash on the $spread side, and $why"
  }

  /** In one word, for the loop. */
  def name: String = {
    val sure = sides -- unsure
    if (sure.size == 2) "either" else sure.headOption.fold("")(_.name)
  }

  /** Whether a table splits a side of which nothing is known. */
  def isUnsureOf(table: Table): Boolean =
    table.splitGrids.exists { case (_, split) => unsure.exists(split.width(_) > 1) }

  def and(other: Splits): Splits = {
    val both = sides.intersect(other.sides)
    Splits(both, if (both == sides) why else other.why, unsure ++ other.unsure)
  }
}

private[skewless] object Splits {
  def none(why: String): Splits = Splits(Set.empty, why)
}

private[skewless] object StateShape {
  final case class Routable(partitions: Int, splits: Splits) extends StateShape
  final case class Refused(why: String) extends StateShape

  def keepsOurs(conf: SQLConf): Boolean = conf.stateStoreProviderClass == Handover.Ours

  /** Why a state store provider rules tables out, if it does, and what to do. */
  def obstacle(conf: SQLConf): Option[String] = Option.when(!keepsOurs(conf))(
    s"its checkpoint keeps it with ${conf.stateStoreProviderClass}, which cannot move it. " +
      (conf.stateStoreProviderClass match {
        case Handover.Sparks =>
          s"Start it again with ${SkewlessConf.Adopt.key}=true (skewless.configure(builder, adopt=True)): " +
            "Skewless then takes the checkpoint over, and gives it back when asked"
        case Handover.HdfsBacked =>
          "Stop it, run `skewless convert CHECKPOINT`, and start it again with " +
            s"${SkewlessConf.Adopt.key}=true"
        case _ =>
          "Skewless takes over checkpoints of Spark's own providers only: start the query on a new " +
            "checkpoint, in a session from skewless.configure(builder)"
      })
  )

  /**
   * The name of an operator that keeps state, if a streaming plan has one: the operators that Spark itself
   * counts as stateful.
   */
  def statefulNode(plan: LogicalPlan): Option[String] = plan.collectFirst {
    case node @ (_: Aggregate | _: Deduplicate | _: DeduplicateWithinWatermark | _: Distinct | _: GlobalLimit)
        if node.isStreaming =>
      node.nodeName
    case node @ (_: FlatMapGroupsWithState | _: FlatMapGroupsInPandasWithState | _: TransformWithState |
        _: TransformWithStateInPySpark) if node.isStreaming =>
      node.nodeName
    case join if isJoin(join) => "stream-stream join"
  }

  def isJoin(plan: LogicalPlan): Boolean = plan match {
    case join: Join => join.left.isStreaming && join.right.isStreaming
    case _ => false
  }

  /**
   * Whether a query that has planned nothing yet will be routed: provider and steps leave the planner no
   * other choice.
   */
  def isCertain(execution: StreamExecution): Boolean =
    statefulNode(execution.analyzedPlan).isDefined &&
      obstacle(execution.sparkSession.sessionState.conf).isEmpty &&
      !execution.analyzedPlan.exists {
        case join: Join => !(join.left.isStreaming && join.right.isStreaming)
        case aggregate: Aggregate => aggregate.groupingExpressions.isEmpty
        case _: Union | _: GlobalLimit => true
        case _ => false
      }
}
