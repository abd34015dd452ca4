// In Spark's package because it extends Spark's physical nodes.
package org.apache.spark.sql.skewless.state

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.{
  TransformWithStateExec,
  TransformWithStateExecBase
}

/**
 * transformWithState takes Spark's RocksDB provider alone, by its name. Ours is that provider with keys that
 * can move, so the two nodes are replaced by subclasses that ask no name. All else about them stays Spark's.
 */
private[skewless] object AnyProvider {
  def apply(plan: SparkPlan): SparkPlan = plan match {
    case node: TransformWithStateExec if node.isStreaming => withTagsOf(node)(new AnyProviderTransform(node))
    case node: TransformWithStateInPySparkExec if node.isStreaming =>
      withTagsOf(node)(new AnyProviderTransformInPython(node))
    case other => other
  }

  /** In a batch job the same nodes keep their state in a folder of their own, with Spark's provider. */
  def isStreaming(plan: SparkPlan): Boolean = plan match {
    case node: TransformWithStateExec => node.isStreaming
    case node: TransformWithStateInPySparkExec => node.isStreaming
    case _ => true
  }

  private def withTagsOf(node: SparkPlan)(replacement: SparkPlan): SparkPlan = {
    replacement.copyTagsFrom(node)
    replacement
  }
}

/**
 * What the two subclasses have in common. Each has one constructor argument, the node that it replaces; only
 * what it hands on to Spark's constructor differs between Spark lines (`scala-spark-<line>`).
 */
private[skewless] trait TakesAnyProvider extends TransformWithStateExecBase {
  protected def of: TransformWithStateExecBase

  override protected def validateStateStoreProvider(isStreaming: Boolean): Unit = ()

  /** Spark would look for a constructor with all arguments. */
  override def makeCopy(newArgs: Array[AnyRef]): SparkPlan = AnyProvider(of.makeCopy(newArgs))
}
