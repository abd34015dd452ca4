package org.apache.spark.sql.skewless

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._
import scala.util.Random

import org.apache.spark._
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler._
import org.apache.spark.shuffle.FetchFailedException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.types.{DataType, IntegerType}
import org.apache.spark.storage.BlockManagerId

/**
 * The fault that shows whether a shuffle is repeatable: after some reducers have finished, one mapper's
 * output is lost, so that Spark runs that one mapper again and the rest of the reducers read what it wrote
 * the second time.
 */
private[skewless] object FetchFault {
  private val LostMapper = 1

  /**
   * So many reducers, the first ones, finish on what the mapper wrote first; all others read what it wrote
   * second.
   */
  val ReducersBefore = 3

  private val finished = new ConcurrentHashMap[Int, AtomicInteger]()

  /** The first column of every row, by reducer, as Spark delivers them with the fault on the way. */
  def collectIds(rows: RDD[InternalRow], shuffleId: Int): Array[Array[Long]] = rows
    .mapPartitionsWithIndex { (reducer, partition) =>
      val ids = partition.map(_.getLong(0)).toArray
      if (reducer >= ReducersBefore && TaskContext.get().stageAttemptNumber() == 0) fail(shuffleId, reducer)
      Iterator(ids)
    }
    .collect()

  private def fail(shuffleId: Int, reducer: Int): Unit = {
    val others = finished.computeIfAbsent(TaskContext.get().stageId(), _ => new AtomicInteger)
    val deadline = System.nanoTime() + 60L * 1000 * 1000 * 1000
    while (others.get() < ReducersBefore && System.nanoTime() < deadline) Thread.sleep(5)
    val env = SparkEnv.get
    env.mapOutputTracker
      .asInstanceOf[MapOutputTrackerMaster]
      .unregisterMapOutput(shuffleId, LostMapper, env.blockManager.blockManagerId)
    throw new FetchFailedException(
      BlockManagerId("lost", "nowhere", 1),
      shuffleId,
      0L,
      LostMapper,
      reducer,
      "injected"
    )
  }

  def shuffleOf(rdd: RDD[_]): Int = rdd.dependencies.head match {
    case shuffle: ShuffleDependency[_, _, _] => shuffle.shuffleId
    case other => shuffleOf(other.rdd)
  }

  /** What really happened, seen by the scheduler. */
  final class Witness extends SparkListener {
    val fetchFailures = new AtomicInteger
    @volatile var resultsBefore = 0
    private val attempts = new ConcurrentHashMap[Int, Int]()
    private val results = new AtomicInteger

    override def onStageSubmitted(event: SparkListenerStageSubmitted): Unit =
      attempts.merge(event.stageInfo.stageId, event.stageInfo.attemptNumber(), (a, b) => a.max(b))

    override def onTaskEnd(end: SparkListenerTaskEnd): Unit = end.reason match {
      case Success if end.taskType == "ResultTask" =>
        results.incrementAndGet()
        finished.computeIfAbsent(end.stageId, _ => new AtomicInteger).incrementAndGet()
      case _: FetchFailed => if (fetchFailures.getAndIncrement() == 0) resultsBefore = results.get()
      case _ =>
    }

    def reattempted: Int = attempts.values.asScala.count(_ > 0)
  }
}

/**
 * Hands its child's rows on in an order that differs from attempt to attempt, as a shuffle's reading end may.
 */
private[skewless] case class ReorderedExec(child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: SparkPlan): ReorderedExec = copy(child = newChild)
  override protected def doExecute(): RDD[InternalRow] = child.execute().mapPartitionsInternal { rows =>
    new Random(TaskContext.get().taskAttemptId()).shuffle(rows.map(_.copy()).toSeq).iterator
  }
}

/**
 * What Skewless must never do: of two partitions the row goes to the one that has had fewer rows so far. It
 * levels well, and a second attempt finds other loads and writes other rows.
 */
private[skewless] class LoadPartitioning(keys: Seq[Expression], n: Int) extends HashPartitioning(keys, n) {
  override def partitionIdExpression: Expression = LessLoaded(super.partitionIdExpression, n)
  override def canEqual(other: Any): Boolean = other.isInstanceOf[LoadPartitioning]
  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): HashPartitioning =
    new LoadPartitioning(newChildren, n)
}

private[skewless] case class LessLoaded(child: Expression, n: Int)
    extends UnaryExpression
    with CodegenFallback {
  override def dataType: DataType = IntegerType
  override def nullable: Boolean = false
  override def eval(row: InternalRow): Any = {
    val first = child.eval(row).asInstanceOf[Int]
    val second = (first + n / 2) % n
    val chosen = if (LessLoaded.rows.get(first) <= LessLoaded.rows.get(second)) first else second
    LessLoaded.rows.incrementAndGet(chosen)
    chosen
  }
  override protected def withNewChildInternal(newChild: Expression): Expression = copy(child = newChild)
}

private[skewless] object LessLoaded {
  val rows = new java.util.concurrent.atomic.AtomicIntegerArray(1024)
}
