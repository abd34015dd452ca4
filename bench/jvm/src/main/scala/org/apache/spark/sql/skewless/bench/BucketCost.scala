// In Spark's package because it builds exchanges by hand and reads runs of their partitions.
package org.apache.spark.sql.skewless.bench

import java.lang.management.ManagementFactory
import java.util.concurrent.atomic.AtomicLong

import scala.concurrent.Await
import scala.concurrent.duration.Duration
import scala.util.Random

import com.sun.management.OperatingSystemMXBean
import io.skewless.table.{SharedTable, Table}
import org.apache.spark.{Partition, ShuffleDependency, SparkEnv, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler.{SparkListener, SparkListenerTaskEnd}
import org.apache.spark.shuffle.sort.SortShuffleManager.FETCH_SHUFFLE_BLOCKS_IN_BATCH_ENABLED_KEY
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.skewless.route.RoutedPartitioning
import org.apache.spark.sql.types.{DataType, IntegerType}
import org.apache.spark.util.CollectionAccumulator

/**
 * What an exchange of n x v buckets costs against a routed one of n partitions: the trial behind
 * `docs/design/0005-late-routing.md`. Called by `bench/late.py`; nothing of it is in the product.
 *
 * A bucket exchange counts its rows by bucket, runs its map stage as a job of its own, and is then read as n
 * partitions, each one or more runs of buckets.
 */
object BucketCost {
  private val Mappers = 4
  private val Entries = 3000
  private type Dependency = ShuffleDependency[Int, InternalRow, InternalRow]

  /** Lines `name, map CPU, reduce CPU, CPU of the process, wall`, in ms, one per variant and round. */
  def measure(session: org.apache.spark.sql.SparkSession, rows: Long, n: Int, rounds: Int): Array[String] = {
    val spark = session.asInstanceOf[SparkSession]
    val child = input(spark, rows)
    val cpu = new TaskCpu
    spark.sparkContext.addSparkListener(cpu)
    val variants = Seq(routed(n), routed(n, " again")) ++ Seq(8, 16, 32).flatMap { v =>
      Seq(0.0, 0.05, 0.33).map(buckets(n, v, _))
    }
    val lines = for {
      round <- -3 until rounds
      turn <- variants.indices
      variant = variants(Math.floorMod(round + turn, variants.size))
      line = timed(spark, child, variant, cpu)
      if round >= 0
    } yield line
    spark.sparkContext.removeSparkListener(cpu)
    lines.toArray
  }

  private final case class Variant(
      name: String,
      isLate: Boolean,
      partitioning: (SparkSession, Attribute) => HashPartitioning,
      runs: Array[Array[(Int, Int)]]
  )

  private def routed(n: Int, again: String = ""): Variant = Variant(
    s"routed$again",
    isLate = false,
    (spark, key) => {
      val random = new Random(7)
      val entries = Iterator.continually(random.nextInt()).distinct.take(Entries)
      val table = Table(n, entries.map(hash => hash -> Seq(Math.floorMod(hash, n))).toMap)
      new RoutedPartitioning(Seq(key), n, SharedTable(table, spark.sparkContext), None)
    },
    Array.tabulate(n)(p => Array((p, p + 1)))
  )

  private def buckets(n: Int, v: Int, moved: Double): Variant = {
    val random = new Random(11)
    val owner = Array.tabulate(n * v)(_ / v)
    random.shuffle(owner.indices.toList).take((moved * n * v).round.toInt).foreach { bucket =>
      owner(bucket) = random.nextInt(n)
    }
    val runs = Array.tabulate(n)(p => runsOf(owner.indices.filter(owner(_) == p)))
    Variant(
      f"v=$v%d, $moved%.2f moved, ${runs.map(_.length).sum.toDouble / n}%.1f runs",
      isLate = true,
      (spark, key) =>
        new BucketPartitioning(
          Seq(key),
          n,
          v,
          spark.sparkContext.collectionAccumulator[Array[Long]]
        ),
      runs
    )
  }

  private def runsOf(buckets: Seq[Int]): Array[(Int, Int)] =
    buckets
      .foldLeft(List.empty[(Int, Int)]) {
        case ((start, end) :: rest, bucket) if end == bucket => (start, bucket + 1) :: rest
        case (runs, bucket) => (bucket, bucket + 1) :: runs
      }
      .reverse
      .toArray

  private def input(spark: SparkSession, rows: Long): SparkPlan =
    spark
      .range(0, rows, 1, Mappers)
      .selectExpr("pmod(xxhash64(id), 1000000) AS k", "id AS v")
      .queryExecution
      .executedPlan

  private def timed(spark: SparkSession, child: SparkPlan, variant: Variant, cpu: TaskCpu): String = {
    val context = spark.sparkContext
    context.listenerBus.waitUntilEmpty()
    cpu.clear()
    val process = ManagementFactory.getOperatingSystemMXBean.asInstanceOf[OperatingSystemMXBean]
    val (wall, used) = (System.nanoTime(), process.getProcessCpuTime)
    val exchange = ShuffleExchangeExec(variant.partitioning(spark, child.output.head), child)
    val dependency = exchange.shuffleDependency
    if (variant.isLate) Await.result(context.submitMapStage(dependency), Duration.Inf)
    val counted = context.runJob(
      new BucketRunsRDD(dependency, variant.runs),
      (rows: Iterator[InternalRow]) => rows.foldLeft(0L)((count, _) => count + 1)
    )
    val (wallMs, usedMs) =
      ((System.nanoTime() - wall) / 1e6, (process.getProcessCpuTime - used) / 1e6)
    context.listenerBus.waitUntilEmpty()
    f"${variant.name}|${cpu.mapMs}%.3f|${cpu.reduceMs}%.3f|$usedMs%.3f|$wallMs%.3f|${counted.sum}%d"
  }

  private final class TaskCpu extends SparkListener {
    private val (map, reduce) = (new AtomicLong, new AtomicLong)
    def clear(): Unit = { map.set(0); reduce.set(0) }
    def mapMs: Double = map.get / 1e6
    def reduceMs: Double = reduce.get / 1e6
    override def onTaskEnd(end: SparkListenerTaskEnd): Unit = {
      val sum = if (end.taskType == "ShuffleMapTask") map else reduce
      sum.addAndGet(end.taskMetrics.executorCpuTime)
      ()
    }
  }

  /** n partitions, each reading runs of buckets; one reader per run. */
  private final class BucketRunsRDD(dependency: Dependency, runs: Array[Array[(Int, Int)]])
      extends RDD[InternalRow](dependency.rdd.context, Seq(dependency)) {
    dependency.rdd.context.setLocalProperty(FETCH_SHUFFLE_BLOCKS_IN_BATCH_ENABLED_KEY, "true")

    override protected def getPartitions: Array[Partition] =
      runs.indices.map(i => new Partition { override val index: Int = i }).toArray

    override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = {
      val handle = dependencies.head.asInstanceOf[Dependency].shuffleHandle
      val metrics = context.taskMetrics().createTempShuffleReadMetrics()
      runs(split.index).iterator.flatMap { case (start, end) =>
        val reader = SparkEnv.get.shuffleManager
          .getReader[Int, InternalRow](handle, start, end, context, metrics)
        reader.read().map(_._2)
      }
    }
  }
}

/** n x v hash buckets; those of one partition stand side by side. */
class BucketPartitioning(keys: Seq[Expression], n: Int, v: Int, counts: CollectionAccumulator[Array[Long]])
    extends HashPartitioning(keys, n * v) {

  override def partitionIdExpression: Expression = {
    val counter = new BucketCounter(n, v)
    Option(TaskContext.get()).foreach(_.addTaskCompletionListener[Unit](_ => counts.add(counter.rows)))
    BucketId(RoutedPartitioning.keyHash(super.partitionIdExpression, n * v), counter)
  }

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): HashPartitioning =
    new BucketPartitioning(newChildren, n, v, counts)
}

/** Places and counts the rows of one map task; `order` stands for the table in force. */
final class BucketCounter(n: Int, v: Int) extends Serializable {
  val rows = new Array[Long](n * v)
  private val order = Array.tabulate(n * v)(identity)

  def place(hash: Int): Int = {
    val id = order(Math.floorMod(hash, n) * v + Math.floorMod(hash >>> 16, v))
    rows(id) += 1
    id
  }
}

case class BucketId(child: Expression, counter: BucketCounter) extends UnaryExpression {
  override def dataType: DataType = IntegerType
  override def nullable: Boolean = false
  override protected def nullSafeEval(hash: Any): Any = counter.place(hash.asInstanceOf[Int])
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val place = ctx.addReferenceObj("counter", counter)
    defineCodeGen(ctx, ev, hash => s"$place.place($hash)")
  }
  override protected def withNewChildInternal(newChild: Expression): BucketId = copy(child = newChild)
}
