package io.skewless.observe

import scala.collection.mutable

/**
 * The state bytes of each query, from what the tasks of its stateful stages measured. Driver; not
 * thread-safe.
 */
private[observe] final class StateRecorder(retainedBatches: Int, tracked: Int) {
  private val measured =
    new Retained[(String, Long)](retainedBatches, _._1, _._2) // accumulator -> query, batch
  private val memories = mutable.HashMap.empty[String, StateMemory]

  def expect(accumulatorId: Long, queryId: String, batchId: Long): Unit =
    measured.add(accumulatorId, (queryId, batchId))

  def record(accumulatorId: Long, sizes: Seq[_]): Unit =
    measured.get(accumulatorId).foreach { case (query, batch) =>
      memories
        .getOrElseUpdate(query, new StateMemory(4 * tracked))
        .learn(batch, sizes.collect { case size: TaskSizes => size })
    }

  /** What is known of a query's state in `n` partitions. */
  def known(queryId: String, n: Int): KnownState = memories.getOrElse(queryId, new StateMemory(0)).known(n)

  def forget(queryId: String): Unit = {
    measured.forget(queryId)
    memories.remove(queryId)
    ()
  }
}
