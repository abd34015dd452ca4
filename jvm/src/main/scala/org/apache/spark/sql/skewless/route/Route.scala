// In Spark's package because expressions generate code through Catalyst's private API.
package org.apache.spark.sql.skewless.route

import io.skewless.SkewlessException
import io.skewless.observe.KeySampler
import io.skewless.table.{Probe, Table}
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, Literal}
import org.apache.spark.sql.catalyst.expressions.codegen.{
  CodeGenerator,
  CodegenContext,
  ExprCode,
  FalseLiteral
}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.types.{DataType, IntegerType}

/**
 * The partition id of a row: what the table says of the key hash, else hash mod n. Made inside the map task
 * by `RoutedPartitioning.partitionIdExpression` and compiled into the shuffle writer's projection.
 *
 * @param hash    Spark's own key hash, never null
 * @param content a hash of the whole row, evaluated for rows of split keys only; a literal where content may
 *                not decide
 */
private[skewless] case class Route(hash: Expression, content: Expression, router: Router) extends Expression {

  override def children: Seq[Expression] = Seq(hash, content)
  override def dataType: DataType = IntegerType
  override def nullable: Boolean = false
  override def prettyName: String = "route"

  override def eval(row: InternalRow): Any = {
    val keyHash = hash.eval(row).asInstanceOf[Int]
    val code = router.find(keyHash)
    if (code >= 0) code
    else if (code == Probe.Absent) Math.floorMod(keyHash, router.partitions)
    else router.spread(code, keyHash, content.eval(row).asInstanceOf[Int])
  }

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val keyHash = hash.genCode(ctx)
    val rowHash = content.genCode(ctx)
    val routerRef = ctx.addReferenceObj("router", router, classOf[Router].getName)
    val n = router.partitions // as a constant: the compiler turns the division into a multiplication
    val code = code"""
      ${keyHash.code}
      ${CodeGenerator.javaType(IntegerType)} ${ev.value} = $routerRef.find(${keyHash.value});
      if (${ev.value} == ${Probe.Absent}) {
        ${ev.value} = ${keyHash.value} % $n;
        if (${ev.value} < 0) ${ev.value} += $n;
      } else if (${ev.value} < 0) {
        ${rowHash.code}
        ${ev.value} = $routerRef.spread(${ev.value}, ${keyHash.value}, ${rowHash.value});
      }
    """
    ev.copy(code = code, isNull = FalseLiteral)
  }

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Route =
    copy(hash = newChildren(0), content = newChildren(1))
}

private[skewless] object Route {

  /** The content that never decides: mappers take turns instead. */
  val NoContent: Expression = Literal(0)

  def apply(
      hash: Expression,
      content: Option[Expression],
      table: Table,
      sampler: Option[KeySampler] = None
  ): Route =
    Route(hash, content.getOrElse(NoContent), Router(table, byContent = content.isDefined, sampler))
}

/**
 * A table together with the mapper that asks it; lives in one map task and is called for each of its rows.
 */
final class Router(table: Table, mapPartition: Int, mappers: Int, byContent: Boolean, sampler: KeySampler) {
  val partitions: Int = table.partitions
  private val probe = table.probe
  def find(hash: Int): Int = {
    if (sampler ne null) sampler.see(hash)
    probe.find(hash)
  }
  def spread(code: Int, hash: Int, content: Int): Int =
    table.spread(code, hash, mapPartition, mappers, content, byContent)
}

private[skewless] object Router {
  def apply(table: Table, byContent: Boolean, sampler: Option[KeySampler] = None): Router = {
    val task = TaskContext.get()
    if (task != null) new Router(table, task.partitionId(), task.numPartitions(), byContent, sampler.orNull)
    else if (!table.hasSplits) new Router(table, 0, 1, byContent, sampler.orNull)
    else
      throw SkewlessException.table(
        "a split key was routed outside a map task, where no mapper is known. Route splits in a shuffle: " +
          "skewless.repartition."
      )
  }
}
