// In Spark's package because it stands in the RDDs of physical plans.
package org.apache.spark.sql.skewless.state

import java.util.concurrent.ConcurrentHashMap

import io.skewless.moves.Chunk
import org.apache.spark.{Partition, Partitioner, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * What the plan tells the tasks of a stateful stage: their rows were routed by Skewless's rule, for this
 * version of these operators' state. `MovingStateStoreProvider` lets no task write state without it.
 */
private[skewless] final case class StateMark(stateRoot: String, version: Long, operators: Set[Long])

/** The mark of one task, with the state that leaves and enters its partition in this batch. */
private[skewless] final case class TaskMark(
    mark: StateMark,
    partition: Int,
    leaving: Seq[Chunk],
    entering: Seq[Chunk],
    stores: Seq[StateStoreLayout],
    measure: Option[StateMeasure]
) {

  /** How one store keeps its rows; known where rows are merged. */
  def layout(store: StateStoreId): Option[StateStoreLayout] =
    stores.find(l => l.operatorId == store.operatorId && l.storeName == store.storeName)

  def covers(store: StateStoreId): Boolean =
    store.checkpointRootLocation == mark.stateRoot && mark.operators(
      store.operatorId
    ) && store.partitionId == partition

  /** What leaves and enters one store, or None if it stays as it is. */
  def movesOf(store: StateStoreId): Option[(Seq[Chunk], Seq[Chunk])] = {
    def ofStore(chunks: Seq[Chunk]) =
      chunks.filter(c => c.operatorId == store.operatorId && c.storeName == store.storeName)
    Some((ofStore(leaving), ofStore(entering))).filter { case (out, in) => out.nonEmpty || in.nonEmpty }
  }
}

/**
 * The marks of the tasks that run in this JVM. Filled by `StateMarkRDD`, which stands between the exchange
 * and the stateful operators of its stage: Spark computes an operator's input before it opens the operator's
 * store.
 */
private[skewless] object StateMarks {
  private val byTask = new ConcurrentHashMap[Long, Seq[TaskMark]]()

  def enter(mark: TaskMark, task: TaskContext): Unit = {
    val id = task.taskAttemptId()
    if (byTask.put(id, mark +: byTask.getOrDefault(id, Nil).filter(_.mark != mark.mark)) == null)
      task.addTaskCompletionListener[Unit](_ => byTask.remove(id))
  }

  /** The mark of the current task for a store, if it has one. */
  def find(store: StateStoreId): Option[TaskMark] =
    Option(TaskContext.get()).flatMap(task =>
      byTask.getOrDefault(task.taskAttemptId(), Nil).find(_.covers(store))
    )
}

private final case class MarkedPartition(
    parent: Partition,
    leaving: Seq[Chunk],
    entering: Seq[Chunk],
    stores: Seq[StateStoreLayout]
) extends Partition {
  override def index: Int = parent.index
}

/**
 * Passes rows through; registers the task's mark before the first of them. Each task carries the chunks of
 * its own partition only.
 */
private[skewless] final class StateMarkRDD(
    rows: RDD[InternalRow],
    mark: StateMark,
    measure: Option[StateMeasure],
    @transient private val moved: StateMoves
) extends RDD[InternalRow](rows) {
  override val partitioner: Option[Partitioner] = rows.partitioner

  override protected def getPartitions: Array[Partition] = {
    val (bySource, byTarget) = (moved.leaving.groupBy(_.source), moved.chunks.groupBy(_.target))
    firstParent[InternalRow].partitions.map { p =>
      val entering = byTarget.getOrElse(p.index, Nil)
      val stores = if (entering.exists(_.merges)) moved.stores else Nil
      MarkedPartition(p, bySource.getOrElse(p.index, Nil), entering, stores)
    }
  }

  override protected def getPreferredLocations(split: Partition): Seq[String] =
    firstParent[InternalRow].preferredLocations(split.asInstanceOf[MarkedPartition].parent)

  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = {
    val own = split.asInstanceOf[MarkedPartition]
    StateMarks.enter(TaskMark(mark, own.index, own.leaving, own.entering, own.stores, measure), context)
    firstParent[InternalRow].iterator(own.parent, context)
  }
}
