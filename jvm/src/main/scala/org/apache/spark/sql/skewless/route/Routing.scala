// In Spark's package because it builds Datasets from logical plans, which Spark keeps private.
package org.apache.spark.sql.skewless.route

import io.skewless.SkewlessException
import io.skewless.table.Table
import org.apache.spark.sql.{AnalysisException, Column, DataFrame}
import org.apache.spark.sql.catalyst.expressions.{CollationAwareMurmur3Hash, Expression}
import org.apache.spark.sql.classic.{Dataset, ExpressionUtils, SparkSession}

/** What a user can ask of a DataFrame; `io.skewless.Gateway` is its door for Python. */
object Routing {

  /** `df.repartition(n, columns)`, routed by the table, or by the one published for the running query. */
  def repartition(df: DataFrame, n: Int, columns: Seq[Column], table: Option[Table]): DataFrame = {
    val dataset = df.asInstanceOf[Dataset[_]]
    val session = dataset.sparkSession
    table.foreach { t =>
      if (t.partitions != n)
        throw SkewlessException.table(
          s"the table is for ${t.partitions} partitions, the repartition for $n. Make the two equal."
        )
    }
    if (table.exists(_.hasGrids)) throw gridsNeedJoin
    if (n < 1 || n > Table.MaxPartitions)
      throw SkewlessException.setting(s"$n partitions: a shuffle has 1 to ${Table.MaxPartitions}.")
    if (columns.isEmpty)
      throw SkewlessException.column(
        "no key column was given. Name at least one: repartition(df, n, \"key\")."
      )
    val result =
      try
        Dataset.ofRows(
          session,
          RoutedRepartition(columns.map(session.expression), n, table, dataset.logicalPlan)
        )
      catch {
        case e: AnalysisException =>
          throw new SkewlessException(
            "ColumnError",
            s"the key cannot be resolved: ${e.getMessage} Name columns of the DataFrame.",
            e
          )
      }
    result.queryExecution.analyzed
      .collectFirst { case node: RoutedRepartition => node.keys }
      .foreach(checkKeys)
    result
  }

  private[route] def gridsNeedJoin: SkewlessException = SkewlessException.table(
    "the table splits the right side of a join, and a repartition has no sides: each row goes to one " +
      "partition. Give a list of targets."
  )

  /** The 32-bit hash that Spark partitions by, as a column: what a table's entries are keyed on. */
  def keyHash(session: SparkSession, columns: Seq[Column]): Column =
    ExpressionUtils.column(new CollationAwareMurmur3Hash(columns.map(session.expression)))

  def checkSession(session: SparkSession): Unit =
    if (!session.sessionState.planner.strategies.exists(_.isInstanceOf[RoutedRepartitionStrategy]))
      throw SkewlessException.session(
        s"the session has no Skewless extension. ${SkewlessException.SetExtension}."
      )

  private def checkKeys(keys: Seq[Expression]): Unit =
    keys.find(key => !RepeatableRows.canHash(key.dataType)).foreach { key =>
      throw SkewlessException.column(
        s"the key ${key.sql} is of type ${key.dataType.sql}, which Spark cannot hash. Use map_entries or " +
          "another plain value as key."
      )
    }
}
