package io.skewless.observe

import scala.collection.mutable

import org.apache.spark.SparkConf

/**
 * The executors that are alive and take tasks, each with the number of tasks that it runs at once. Driver;
 * not thread-safe.
 */
private[observe] final class SlotRecorder(taskCpus: Int) {
  private val executors = mutable.LinkedHashMap.empty[String, Int]
  private val excluded = mutable.HashSet.empty[String]
  private val busy = mutable.HashMap.empty[String, Long].withDefaultValue(0L)

  /** A task of any kind has ended there. */
  def ran(executor: String, millis: Long): Unit = busy(executor) += millis

  def added(executor: String, cores: Int): Unit = executors(executor) = cores / taskCpus

  def removed(executor: String): Unit = {
    executors.remove(executor)
    busy.remove(executor)
    excluded -= executor
  }

  /** It has failed too often, and gets no tasks for a while. */
  def exclude(executor: String): Unit = excluded += executor

  def include(executor: String): Unit = excluded -= executor

  def alive: Slots =
    Slots(executors.toSeq.filterNot { case (executor, _) => excluded(executor) }, busy.toMap)
}

/**
 * How many tasks each executor runs at once.
 *
 * @param busyMs how long the tasks of each have run, all of them added up since it came
 */
final case class Slots(byExecutor: Seq[(String, Int)], busyMs: Map[String, Long] = Map.empty) {
  private val indices = byExecutor.map(_._1).zipWithIndex.toMap

  /** The executor's place in this list; -1 if it is not there any more, or was never known. */
  def indexOf(executor: String): Int = indices.getOrElse(executor, -1)
}

object Slots {
  val Unknown: Slots = Slots(Nil)

  /** CPUs that one task takes. */
  def taskCpus(conf: SparkConf): Int = conf.getInt("spark.task.cpus", 1).max(1)

  /** How long a free slot waits for a task whose state lies on its executor, before it takes another's. */
  def localityWaitMs(conf: SparkConf): Long =
    conf.getTimeAsMs(
      "spark.locality.wait.process",
      s"${conf.getTimeAsMs("spark.locality.wait", "3s")}ms"
    )
}
