// In Spark's package because it extends Spark's physical nodes.
package org.apache.spark.sql.skewless.state

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec

final class AnyProviderTransform(@transient override protected val of: TransformWithStateExec)
    extends TransformWithStateExec(
      of.keyDeserializer,
      of.valueDeserializer,
      of.groupingAttributes,
      of.dataAttributes,
      of.statefulProcessor,
      of.timeMode,
      of.outputMode,
      of.keyEncoder,
      of.outputObjAttr,
      of.stateInfo,
      of.batchTimestampMs,
      of.prevBatchTimestampMs,
      of.eventTimeWatermarkForLateEvents,
      of.eventTimeWatermarkForEviction,
      of.child,
      of.isStreaming,
      of.isRealTimeMode,
      of.hasInitialState,
      of.initialStateGroupingAttrs,
      of.initialStateDataAttrs,
      of.initialStateDeserializer,
      of.initialState
    )
    with TakesAnyProvider {
  override protected def withNewChildrenInternal(
      newLeft: SparkPlan,
      newRight: SparkPlan
  ): TransformWithStateExec =
    AnyProvider(super.withNewChildrenInternal(newLeft, newRight)).asInstanceOf[TransformWithStateExec]
}

final class AnyProviderTransformInPython(
    @transient override protected val of: TransformWithStateInPySparkExec
) extends TransformWithStateInPySparkExec(
      of.functionExpr,
      of.groupingAttributes,
      of.outputAttrs,
      of.outputMode,
      of.timeMode,
      of.stateInfo,
      of.batchTimestampMs,
      of.prevBatchTimestampMs,
      of.eventTimeWatermarkForLateEvents,
      of.eventTimeWatermarkForEviction,
      of.userFacingDataType,
      of.child,
      of.isStreaming,
      of.hasInitialState,
      of.initialState,
      of.initialStateGroupingAttrs,
      of.initialStateSchema
    )
    with TakesAnyProvider {
  override protected def withNewChildrenInternal(
      newLeft: SparkPlan,
      newRight: SparkPlan
  ): TransformWithStateInPySparkExec =
    AnyProvider(super.withNewChildrenInternal(newLeft, newRight))
      .asInstanceOf[TransformWithStateInPySparkExec]
}
