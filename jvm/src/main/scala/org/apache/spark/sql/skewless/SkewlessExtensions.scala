// In Spark's package because what it injects is Spark-private.
package org.apache.spark.sql.skewless

import io.skewless.{SkewlessException, SparkLine}
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.execution.exchange.{ShuffleExchangeExec, ShuffleExchangeLike}
import org.apache.spark.sql.skewless.route.{PrepareBatch, RoutedPartitioning, RoutedRepartitionStrategy}
import org.apache.spark.sql.skewless.split.SpreadPartitioning

/** `spark.sql.extensions`: teaches a session to plan routed exchanges. Applied once a session. */
class SkewlessExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    SparkLine.check()
    extensions.injectPlannerStrategy(session => RoutedRepartitionStrategy(session.asInstanceOf[SparkSession]))
    extensions.injectColumnar(session =>
      new ColumnarRule {
        override def preColumnarTransitions: Rule[SparkPlan] =
          PrepareBatch(session.asInstanceOf[SparkSession])
        override def postColumnarTransitions: Rule[SparkPlan] = OnlySparksExchange
      }
    )
  }
}

/**
 * Refuses a plan in which another plugin has put an exchange of its own in place of a routed one: it would
 * take the routed partitioning for a plain hash and route rows by its own. Runs after every other columnar
 * rule.
 */
private[skewless] object OnlySparksExchange extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = {
    plan.foreach {
      case _: ShuffleExchangeExec =>
      case other: ShuffleExchangeLike if isOurs(other.outputPartitioning) =>
        throw SkewlessException.session(
          s"another plugin replaced a routed exchange by ${other.getClass.getName}, which does not know " +
            "the table. Switch that " +
            "plugin's shuffle off, or do not use skewless.repartition with it."
        )
      case _ =>
    }
    plan
  }

  private def isOurs(partitioning: Partitioning): Boolean =
    partitioning.isInstanceOf[RoutedPartitioning] || partitioning.isInstanceOf[SpreadPartitioning]
}
