// In Spark's package because it extends Spark's physical nodes.
package org.apache.spark.sql.skewless.state

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}
import org.apache.spark.sql.types.StructType

/**
 * transformWithState takes Spark's RocksDB provider alone, by its name. Ours is that provider with keys that
 * can move, so the two nodes are replaced by subclasses that ask no name. All else about them stays Spark's.
 */
private[skewless] object AnyProvider {
  def apply(plan: SparkPlan): SparkPlan = plan match {
    case node: TransformWithStateExec if node.isStreaming => scala(node)
    case node: TransformWithStateInPySparkExec if node.isStreaming => python(node)
    case other => other
  }

  /** In a batch job the same nodes keep their state in a folder of their own, with Spark's provider. */
  def isStreaming(plan: SparkPlan): Boolean = plan match {
    case node: TransformWithStateExec => node.isStreaming
    case node: TransformWithStateInPySparkExec => node.isStreaming
    case _ => true
  }

  private def scala(node: TransformWithStateExec): SparkPlan = new AnyProviderTransformExec(
    node.keyDeserializer,
    node.valueDeserializer,
    node.groupingAttributes,
    node.dataAttributes,
    node.statefulProcessor,
    node.timeMode,
    node.outputMode,
    node.keyEncoder,
    node.outputObjAttr,
    node.stateInfo,
    node.batchTimestampMs,
    node.prevBatchTimestampMs,
    node.eventTimeWatermarkForLateEvents,
    node.eventTimeWatermarkForEviction,
    node.child,
    node.isStreaming,
    node.hasInitialState,
    node.initialStateGroupingAttrs,
    node.initialStateDataAttrs,
    node.initialStateDeserializer,
    node.initialState
  ).withTagsOf(node)

  private def python(node: TransformWithStateInPySparkExec): SparkPlan = new AnyProviderTransformInPythonExec(
    node.functionExpr,
    node.groupingAttributes,
    node.output,
    node.outputMode,
    node.timeMode,
    node.stateInfo,
    node.batchTimestampMs,
    node.prevBatchTimestampMs,
    node.eventTimeWatermarkForLateEvents,
    node.eventTimeWatermarkForEviction,
    node.userFacingDataType,
    node.child,
    node.isStreaming,
    node.hasInitialState,
    node.initialState,
    node.initialStateGroupingAttrs,
    node.initialStateSchema
  ).withTagsOf(node)
}

final class AnyProviderTransformExec(
    keyDeserializer: Expression,
    valueDeserializer: Expression,
    groupingAttributes: Seq[Attribute],
    dataAttributes: Seq[Attribute],
    statefulProcessor: StatefulProcessor[Any, Any, Any],
    timeMode: TimeMode,
    outputMode: OutputMode,
    keyEncoder: ExpressionEncoder[Any],
    outputObjAttr: Attribute,
    stateInfo: Option[StatefulOperatorStateInfo],
    batchTimestampMs: Option[Long],
    prevBatchTimestampMs: Option[Long],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    child: SparkPlan,
    isStreaming: Boolean,
    hasInitialState: Boolean,
    initialStateGroupingAttrs: Seq[Attribute],
    initialStateDataAttrs: Seq[Attribute],
    initialStateDeserializer: Expression,
    initialState: SparkPlan
) extends TransformWithStateExec(
      keyDeserializer,
      valueDeserializer,
      groupingAttributes,
      dataAttributes,
      statefulProcessor,
      timeMode,
      outputMode,
      keyEncoder,
      outputObjAttr,
      stateInfo,
      batchTimestampMs,
      prevBatchTimestampMs,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      child,
      isStreaming,
      hasInitialState,
      initialStateGroupingAttrs,
      initialStateDataAttrs,
      initialStateDeserializer,
      initialState
    ) {
  def withTagsOf(node: SparkPlan): this.type = { copyTagsFrom(node); this }
  override protected def validateStateStoreProvider(isStreaming: Boolean): Unit = ()
  override protected def withNewChildrenInternal(
      newLeft: SparkPlan,
      newRight: SparkPlan
  ): TransformWithStateExec =
    AnyProvider(super.withNewChildrenInternal(newLeft, newRight)).asInstanceOf[TransformWithStateExec]
}

final class AnyProviderTransformInPythonExec(
    functionExpr: Expression,
    groupingAttributes: Seq[Attribute],
    output: Seq[Attribute],
    outputMode: OutputMode,
    timeMode: TimeMode,
    stateInfo: Option[StatefulOperatorStateInfo],
    batchTimestampMs: Option[Long],
    prevBatchTimestampMs: Option[Long],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    userFacingDataType: UserFacingDataType.Value,
    child: SparkPlan,
    isStreaming: Boolean,
    hasInitialState: Boolean,
    initialState: SparkPlan,
    initialStateGroupingAttrs: Seq[Attribute],
    initialStateSchema: StructType
) extends TransformWithStateInPySparkExec(
      functionExpr,
      groupingAttributes,
      output,
      outputMode,
      timeMode,
      stateInfo,
      batchTimestampMs,
      prevBatchTimestampMs,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      userFacingDataType,
      child,
      isStreaming,
      hasInitialState,
      initialState,
      initialStateGroupingAttrs,
      initialStateSchema
    ) {
  def withTagsOf(node: SparkPlan): this.type = { copyTagsFrom(node); this }
  override protected def validateStateStoreProvider(isStreaming: Boolean): Unit = ()
  override protected def withNewChildrenInternal(
      newLeft: SparkPlan,
      newRight: SparkPlan
  ): TransformWithStateInPySparkExec =
    AnyProvider(super.withNewChildrenInternal(newLeft, newRight))
      .asInstanceOf[TransformWithStateInPySparkExec]
}
