// In Spark's package because the scheduler's backend is Spark-private.
package org.apache.spark.sql.skewless.placement

import io.skewless.SkewlessException
import org.apache.spark.{ExecutorAllocationClient, SparkContext}
import org.apache.spark.internal.config.{DECOMMISSION_ENABLED, DYN_ALLOCATION_ENABLED}
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler.{ExecutorCacheTaskLocation, ExecutorDecommissionInfo}
import org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend

/**
 * Adds executors and ends them, through Spark's own calls. Separate from the wishes, which only say where
 * tasks should run. Driver, called by Python's loop or a user's thread, never by a batch.
 */
final class Executors(context: SparkContext) {
  import Executors._

  /** Why executors can be neither added nor ended here. */
  def obstacle: Option[String] =
    if (context.conf.get(DYN_ALLOCATION_ENABLED))
      Some(
        "dynamic allocation is on and decides how many executors there are. Set " +
          "spark.dynamicAllocation.enabled=false when the application starts"
      )
    else
      context.schedulerBackend match {
        case _: StandaloneSchedulerBackend => None
        case other =>
          Some(
            s"the cluster is run by ${other.getClass.getSimpleName}. Executors can be added and ended on a " +
              "standalone cluster and in local-cluster"
          )
      }

  def isAlive(executor: String): Boolean = context.schedulerBackend match {
    case cluster: ExecutorAllocationClient => cluster.isExecutorActive(executor)
    case _ => context.isLocal && executor == SparkContext.DRIVER_IDENTIFIER
  }

  def request(total: Int): Boolean = { client; context.requestTotalExecutors(total, 0, Map.empty) }

  /**
   * A new executor has loaded neither the jars nor RocksDB's library, which takes seconds on first use: tasks
   * as many as it has slots do that, beside the batches. A wish like any other: what the scheduler sends
   * elsewhere does no harm.
   */
  def warm(executor: String, slots: Int): Unit =
    AliveExecutors.of(context).hosts.get(executor).foreach { host =>
      val place = Seq(ExecutorCacheTaskLocation(host, executor).toString)
      val tasks: RDD[Int] = context.makeRDD((0 until slots).map(_ -> place))
      context.runJob(tasks, (numbers: Iterator[Int]) => { loadClasses(); numbers.size })
      ()
    }

  /**
   * Only at a moment without a job, since running jobs may need the executor's shuffle files; false if there
   * was none. From the call to Spark on no task starts there. The number that the cluster is asked for goes
   * down first: a standalone master would start another in its place.
   */
  def end(executor: String, waitMs: Long): Boolean = {
    val others = client.getExecutorIds().filter(id => id != executor && isAlive(id))
    if (others.isEmpty)
      throw SkewlessException.setting(
        s"executor '$executor' is the last one, and stays: the query could not go on without it."
      )
    val isQuiet = until(waitMs)(context.statusTracker.getActiveJobIds().isEmpty)
    if (isQuiet) {
      request(others.size)
      client.decommissionExecutor(
        executor,
        ExecutorDecommissionInfo("emptied by Skewless"),
        adjustTargetNumExecutors = false
      )
      leave(executor)
    }
    isQuiet
  }

  /** Waits until it has gone; where Spark's decommissioning is off, it only gets no more tasks, and is killed. */
  private def leave(executor: String): Unit = {
    val goesByItself = context.conf.get(DECOMMISSION_ENABLED)
    def isThere = client.getExecutorIds().contains(executor)
    until(EndMs)(if (goesByItself) !isThere else !isBusy(executor))
    if (isThere && !isBusy(executor))
      client.killExecutors(
        Seq(executor),
        adjustTargetNumExecutors = false,
        countFailures = false,
        force = false
      )
    else if (isThere)
      throw SkewlessException.setting(
        s"executor '$executor' is still at work after ${EndMs / 1000} s. It gets no more tasks; end it later."
      )
  }

  private def isBusy(executor: String): Boolean =
    Option(context.taskScheduler).exists {
      case scheduler: org.apache.spark.scheduler.TaskSchedulerImpl => scheduler.isExecutorBusy(executor)
      case _ => false
    }

  private def client: ExecutorAllocationClient = {
    obstacle.foreach(why => throw SkewlessException.setting(s"the executors cannot be changed: $why."))
    context.schedulerBackend.asInstanceOf[ExecutorAllocationClient]
  }

  /** Whether it came to hold within so many milliseconds. */
  private def until(millis: Long)(holds: => Boolean): Boolean = {
    val deadline = System.nanoTime() + millis * 1000000
    while (!holds && System.nanoTime() < deadline) Thread.sleep(PollMs)
    holds
  }
}

private object Executors {
  private val PollMs = 2L // the gap between two batches is short

  /** How long an executor that gets no more tasks may go on with those it has. */
  private val EndMs = 60000L

  private def loadClasses(): Unit = {
    org.rocksdb.RocksDB.loadLibrary()
    Class.forName("org.apache.spark.sql.skewless.SkewlessStateStoreProvider")
    ()
  }
}
