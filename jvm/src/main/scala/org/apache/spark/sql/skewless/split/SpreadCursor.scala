// In Spark's package because expressions generate code through Catalyst's private API.
package org.apache.spark.sql.skewless.split

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.LeafExpression
import org.apache.spark.sql.catalyst.expressions.codegen.{
  CodeGenerator,
  CodegenContext,
  ExprCode,
  FalseLiteral
}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.types.{DataType, IntegerType}

/**
 * Hands the target of each row from `SpreadExec` to the shuffle writer of the same map task. Spark's exchange
 * pulls a row and asks for its partition before it pulls the next, in one thread; a cursor that is set or
 * read twice in a row fails the task, so that no row can go elsewhere than it should.
 */
private[skewless] final class SpreadCursor private (private val attempt: Long) {
  private var target = SpreadCursor.Taken

  def aim(partition: Int): Unit = {
    if (target != SpreadCursor.Taken) throw SpreadCursor.outOfStep
    target = partition
  }

  def take(): Int = {
    val partition = target
    if (partition == SpreadCursor.Taken) throw SpreadCursor.outOfStep
    target = SpreadCursor.Taken
    partition
  }
}

private[skewless] object SpreadCursor {
  private val Taken = -1
  private val ofThread = new ThreadLocal[SpreadCursor]

  /** The cursor of the current task; a task writes to one exchange. */
  def ofTask(): SpreadCursor = {
    val task = TaskContext.get()
    if (task == null) throw new IllegalStateException("rows are spread in map tasks only")
    val known = ofThread.get()
    if (known != null && known.attempt == task.taskAttemptId()) known
    else {
      val cursor = new SpreadCursor(task.taskAttemptId())
      ofThread.set(cursor)
      cursor
    }
  }

  private def outOfStep =
    new IllegalStateException("the shuffle writer and the spread of rows before it are out of step")
}

/** The partition of a row that `SpreadExec` has just emitted. */
private[skewless] case class SpreadTarget(cursor: SpreadCursor) extends LeafExpression {
  override def dataType: DataType = IntegerType
  override def nullable: Boolean = false
  override def eval(row: InternalRow): Any = cursor.take()

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val cursorRef = ctx.addReferenceObj("cursor", cursor, classOf[SpreadCursor].getName)
    ev.copy(
      code = code"${CodeGenerator.javaType(IntegerType)} ${ev.value} = $cursorRef.take();",
      isNull = FalseLiteral
    )
  }
}
