// In Spark's package because logical nodes and planner strategies are Spark-private.
package org.apache.spark.sql.skewless.route

import io.skewless.observe.KeyCounts
import io.skewless.table.{SharedTable, Table}
import org.apache.spark.sql.catalyst.expressions.{Attribute, CollationAwareMurmur3Hash, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioning, Partitioning}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.exchange.{REPARTITION_BY_NUM, ShuffleExchangeExec}
import org.apache.spark.sql.skewless.query.{ExchangeRouting, QueryRegistry, RoutedByTable, RunningBatch}

/**
 * `repartition(n, keys)` routed by a table: `skewless.repartition` in Python.
 *
 * @param fixed the table to use; None takes the one pinned for the micro-batch being planned, and plain
 *              hashing outside a stream
 */
case class RoutedRepartition(keys: Seq[Expression], n: Int, fixed: Option[Table], child: LogicalPlan)
    extends UnaryNode
    with RoutedByTable {
  override def output: Seq[Attribute] = child.output
  override def maxRows: Option[Long] = child.maxRows
  override protected def withNewChildInternal(newChild: LogicalPlan): RoutedRepartition =
    copy(child = newChild)
  override protected def stringArgs: Iterator[Any] = Iterator(keys, n, fixed.getOrElse("published table"))
}

/**
 * Plans `RoutedRepartition`. Runs on the driver for each batch job and each micro-batch, before Spark decides
 * which shuffles it can drop: the table is known by then, so what `RoutedPartitioning` tells the planner is
 * true of this very batch.
 */
case class RoutedRepartitionStrategy(session: SparkSession) extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case node: RoutedRepartition =>
      val batch = RunningBatch.current(session)
      val run = batch.filter(_ => node.fixed.isEmpty).map(b => b.batchId -> QueryRegistry.run(b))
      val routing = node.fixed match {
        case Some(table) => ExchangeRouting(table.epoch, Some(table).filter(!_.isEmpty))
        case None => run.fold(ExchangeRouting.Plain) { case (id, of) => of.tables.routing(id, node.n) }
      }
      val counts = run.flatMap { case (id, of) => of.keyCounts(id) }
      val exchange = ShuffleExchangeExec(
        partitioning(node, routing.table, counts),
        planLater(node.child),
        REPARTITION_BY_NUM
      )
      RoutedReadExec(
        batch.fold("")(_.queryId.toString),
        batch.fold(-1L)(_.batchId),
        routing.epoch,
        exchange
      ) :: Nil
    case _ => Nil
  }

  private def partitioning(
      node: RoutedRepartition,
      routedBy: Option[Table],
      counts: Option[KeyCounts]
  ): Partitioning =
    if (routedBy.isEmpty && counts.isEmpty) HashPartitioning(node.keys, node.n)
    else {
      val table = routedBy.getOrElse(Table.empty(node.n))
      val shared = SharedTable(table, session.sparkContext)
      new RoutedPartitioning(node.keys, node.n, shared, content(node, table), counts)
    }

  /** Only splits ask for the row's content, and only content that is the same in every attempt may answer. */
  private def content(node: RoutedRepartition, table: Table): Option[Expression] = {
    val columns = node.child.output.filter(column => RepeatableRows.canDecide(column.dataType))
    if (table.hasSplits && columns.nonEmpty && RepeatableRows(node.child))
      Some(new CollationAwareMurmur3Hash(columns))
    else None
  }
}
