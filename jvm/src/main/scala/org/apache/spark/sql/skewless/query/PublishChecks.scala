// In Spark's package because it reads StreamExecution, which Spark keeps private.
package org.apache.spark.sql.skewless.query

import io.skewless.{SkewlessConf, SkewlessException}
import io.skewless.observe.Application
import io.skewless.table.Table
import org.apache.spark.sql.execution.streaming.RealTimeTrigger
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}

/**
 * Whether a query can take a table. A refusal says by its code whether to ask again: `QueryError` is final
 * for this run, `NotYetError` may pass with the query's next batch, `TableError` is about this table alone.
 */
private[query] final class PublishChecks(execution: StreamExecution, handover: Handover) {
  import PublishChecks._

  /** The operator that keeps the query's state, if it has one. */
  val statefulOperator: Option[String] = StateShape.statefulNode(execution.analyzedPlan)

  /** Whether the application takes checkpoints of Spark's RocksDB provider over. */
  def adopts: Boolean =
    Application.of(execution.sparkSession.sparkContext).exists(_.conf.adopt) && runsInMicroBatches

  /** Whether the query can be released. */
  def release(): Unit = {
    def refuse(why: String) = throw SkewlessException.query(s"query ${execution.id} cannot be released: $why")
    if (!execution.isActive)
      refuse("it has stopped. Run `skewless release CHECKPOINT`, or start it again and release it then.")
    if (statefulOperator.isEmpty)
      refuse("it keeps no state, so nothing ties it to Skewless: plain Spark goes on with it as it is.")
    handover.next.filter(_ != Handover.Ours).foreach { provider =>
      refuse(s"its checkpoint names $provider: plain Spark goes on with it as it is.")
    }
  }

  def refuseReleased(batch: Long): Nothing = refuse(
    s"it is released: from batch ${batch + 1} on its checkpoint is plain Spark's. To balance it again, " +
      s"start it again with ${SkewlessConf.Adopt.key}=true."
  )

  /**
   * @param routed     the numbers of partitions of the exchanges that `skewless.repartition` made
   * @param shape      what the last planning found of the stateful stages
   * @param hasPlanned whether this run has planned a batch
   */
  def apply(table: Table, routed: Set[Int], shape: Option[StateShape], hasPlanned: Boolean): Unit = {
    if (!execution.isActive)
      refuse("it has stopped. Start it again and publish then; the old table stays in force.")
    if (!runsInMicroBatches) refuse(NoMicroBatches)
    if (statefulOperator.isDefined && !shape.exists(_.isInstanceOf[StateShape.Refused]) && isBeingAdopted)
      refuseForNow(
        "its checkpoint names Spark's provider until the second batch of this run has begun. Publish then."
      )
    statefulOperator.foreach(checkState(_, table, shape))
    val ofState = statePartitions(shape)
    val partitions = if (statefulOperator.isEmpty || table.isEmpty) routed ++ ofState else ofState.toSet
    if (partitions.isEmpty) refuseUnrouted(hasPlanned)
    if (table.hasGrids && routed.nonEmpty)
      throw SkewlessException.table(
        s"the table splits the right side of a join, and query ${execution.id} has a skewless.repartition, " +
          "where each row goes to one partition. Use splits of the left side; the old table stays in force."
      )
    if (!partitions.contains(table.partitions))
      throw SkewlessException.table(
        s"the table is for ${table.partitions} partitions, query ${execution.id} routes exchanges of " +
          partitions.toSeq.sorted.mkString(", ") +
          ". Make the table for that number; the old table stays in force."
      )
  }

  /**
   * The checkpoint, or the session if there is none, still names Spark's provider. A pin that stood now could
   * be left behind: plain Spark might go on from here, and the pin would tell of a table that never placed
   * anything.
   */
  private def isBeingAdopted: Boolean = adopts && {
    val ofSession = execution.sparkSession.sessionState.conf.stateStoreProviderClass
    handover.newest.getOrElse(ofSession) == Handover.Sparks
  }

  /**
   * Why no table will be taken in this run, as far as it is known by now: what `apply` would refuse, and a
   * single partition, where a table would change nothing.
   *
   * @param hasCommitted whether this run has committed a batch
   */
  def obstacle(routed: Set[Int], shape: Option[StateShape], hasCommitted: Boolean): Option[String] =
    if (!runsInMicroBatches) Some(NoMicroBatches)
    else
      (statefulOperator, shape) match {
        case (Some(operator), Some(StateShape.Refused(why))) =>
          Some(s"its $operator keeps state by key, and $why.")
        case (Some(_), Some(StateShape.Routable(1, _))) => Some(OneStatePartition)
        case (None, _) if routed.isEmpty => Option.when(hasCommitted)(Unrouted)
        case (None, _) if routed == Set(1) => Some(OneRoutedPartition)
        case _ => None
      }

  private def runsInMicroBatches: Boolean =
    execution.isInstanceOf[MicroBatchExecution] && !execution.trigger.isInstanceOf[RealTimeTrigger]

  private def refuse(why: String): Nothing = throw SkewlessException.query(words(why))
  private def refuseForNow(why: String): Nothing = throw SkewlessException.notYet(words(why))
  private def words(why: String) = s"query ${execution.id} cannot take a table: $why"

  private def refuseUnrouted(hasPlanned: Boolean): Nothing =
    if (hasPlanned) refuse(Unrouted) else refuseForNow(Unrouted)

  /** The number of partitions that the state lies in, if the query keeps state that can move. */
  private def statePartitions(shape: Option[StateShape]): Option[Int] = shape match {
    case Some(StateShape.Routable(n, _)) => Some(n)
    case None if StateShape.isCertain(execution) =>
      Some(execution.sparkSession.sessionState.conf.numShufflePartitions)
    case _ => None
  }

  private def checkState(operator: String, table: Table, shape: Option[StateShape]): Unit =
    if (!table.isEmpty) {
      def refuseState(why: String) =
        refuse(s"its $operator keeps state by key, and $why. The old table stays in force.")
      val started = execution.offsetLog.getLatestBatchId().isDefined
      val obstacle = StateShape.obstacle(execution.sparkSession.sessionState.conf)
      shape match {
        case Some(StateShape.Refused(why)) => refuseState(why)
        case None if !started && obstacle.isDefined => obstacle.foreach(refuseState)
        case None if started || !StateShape.isCertain(execution) =>
          refuseForNow(
            s"how its $operator is planned is not known before its first batch of this run. Publish after " +
              "that batch."
          )
        case _ =>
      }
      if (table.hasSplits) checkSplits(operator, table, shape)
    }

  private def checkSplits(operator: String, table: Table, shape: Option[StateShape]): Unit = shape match {
    case _ if !execution.analyzedPlan.exists(StateShape.isJoin) =>
      refuse(
        s"its $operator keeps one state per key, and the table splits ${table.splits} keys over several " +
          "partitions. Move keys instead; the old table stays in force."
      )
    case Some(StateShape.Routable(_, splits)) =>
      splits.obstacle(table).foreach { why =>
        refuse(s"$why. Split another side, or move the key; the old table stays in force.")
      }
      if (splits.isUnsureOf(table))
        refuseForNow("no batch of this run had rows on the side to be split. Publish after one that has.")
    case _ =>
      refuseForNow(
        "which sides of its join may be split is known with its first batch. Publish after that batch."
      )
  }
}

private object PublishChecks {
  val NoMicroBatches: String =
    "it does not run in micro-batches, between which tables are swapped. Use a processing-time or " +
      "available-now trigger."

  val Unrouted: String =
    "no exchange of it is routed (or, inside foreachBatch, none has been planned yet). Put " +
      "skewless.repartition(df, n, key) before the step to level."

  val OneStatePartition: String =
    "its state lies in one partition, and there is nothing to level. A query keeps the number of its first " +
      "start: set spark.sql.shuffle.partitions to the number of task slots and start it on a new checkpoint."

  val OneRoutedPartition: String =
    "its routed exchange has one partition, and there is nothing to level. Give skewless.repartition as " +
      "many partitions as there are task slots."
}
