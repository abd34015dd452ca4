// In Spark's package because the scheduler's view of executors is Spark-private.
package org.apache.spark.sql.skewless.placement

import io.skewless.SkewlessException
import org.apache.spark.{ExecutorAllocationClient, SparkContext}
import org.apache.spark.scheduler.ExecutorCacheTaskLocation

/**
 * On which executor each partition of one query's state should run: a wish, which Spark's scheduler takes or
 * not. Lives in the driver, for one run of the query, and is lost with it; no result depends on it.
 *
 * An executor that is dead or on its way out when a task is about to be placed is not named to Spark: Spark
 * would hold the task back for it for the whole locality wait.
 */
private[skewless] final class PlacementWishes(executors: AliveExecutors) {
  @volatile private var locations = Map.empty[Int, ExecutorCacheTaskLocation]

  /** The wishes as they were made, also those for executors that have died since. */
  def byPartition: Map[Int, String] = locations.view.mapValues(_.executorId).toMap

  def isEmpty: Boolean = locations.isEmpty

  /** Takes the place of all wishes before; holds from the next batch that is planned. All or nothing. */
  def replace(wishes: Map[Int, String], partitions: Option[Int]): Unit = {
    val hosts = executors.hosts
    def refuse(why: String) =
      throw SkewlessException.setting(s"$why; what was wished for before stays.")
    wishes.foreach { case (partition, executor) =>
      if (partition < 0 || partitions.exists(partition >= _))
        refuse(
          s"partition $partition is not one of the query's${partitions.fold("")(" " + _)}. Name partitions " +
            "from 0"
        )
      if (!hosts.contains(executor))
        refuse(
          s"executor '$executor' is not alive, or about to go. Name one of " +
            hosts.keys.toSeq.sorted.mkString(", ")
        )
    }
    locations = wishes.map { case (partition, executor) =>
      partition -> ExecutorCacheTaskLocation(hosts(executor), executor)
    }
  }

  /** Where a partition should run, in the words of an RDD's preferred locations; None leaves it to Spark. */
  def locationOf(partition: Int): Option[String] =
    locations.get(partition).filter(wish => executors.isAlive(wish.executorId)).map(_.toString)
}

/** The executors that are there to stay. */
private[skewless] trait AliveExecutors {

  /** Their hosts, by id. */
  def hosts: Map[String, String]

  /** Asked for each task that is about to be placed: costs next to nothing. */
  def isAlive(executor: String): Boolean
}

private[skewless] object AliveExecutors {

  /** As the scheduler knows them: without those that are lost, about to be removed or decommissioning. */
  def of(context: SparkContext): AliveExecutors = new AliveExecutors {
    override def hosts: Map[String, String] =
      context.env.blockManager.master.getMemoryStatus.keys
        .map(id => id.executorId -> id.host)
        .filter { case (executor, _) => isAlive(executor) }
        .toMap

    override def isAlive(executor: String): Boolean = context.schedulerBackend match {
      case cluster: ExecutorAllocationClient => cluster.isExecutorActive(executor)
      case _ => context.isLocal && executor == SparkContext.DRIVER_IDENTIFIER
    }
  }
}
