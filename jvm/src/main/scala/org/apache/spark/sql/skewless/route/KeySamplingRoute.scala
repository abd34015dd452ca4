// In Spark's package because expressions generate code through Catalyst's private API.
package org.apache.spark.sql.skewless.route

import io.skewless.observe.ValueSample
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.skewless.split.KeyText
import org.apache.spark.sql.types.{DataType, IntegerType}

/**
 * A route that also shows the key of a row to whoever samples values, when asked for; `Route` itself is not
 * changed by it. The keys are children so that they are bound to the row, but are evaluated without generated
 * code and only for a row whose value is wanted.
 */
private[skewless] case class KeySamplingRoute(route: Route, keys: Seq[Expression], values: ValueSample)
    extends Expression {
  override def children: Seq[Expression] = route +: keys
  override def dataType: DataType = IntegerType
  override def nullable: Boolean = false
  override def prettyName: String = "key_sampling_route"

  private lazy val text = new KeyText(keys, values)

  override def eval(row: InternalRow): Any = {
    val partition = route.eval(row)
    if (values.wanted) text.take(row)
    partition
  }

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val routed = route.genCode(ctx)
    val textRef = ctx.addReferenceObj("keyText", text, classOf[KeyText].getName)
    val code = code"""
      ${routed.code}
      if ($textRef.wanted()) $textRef.take(${ctx.INPUT_ROW});
    """
    ExprCode(code, FalseLiteral, routed.value)
  }

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): KeySamplingRoute =
    copy(route = newChildren.head.asInstanceOf[Route], keys = newChildren.tail)
}
