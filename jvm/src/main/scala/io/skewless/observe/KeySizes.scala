package io.skewless.observe

import scala.collection.mutable

import org.apache.spark.util.AccumulatorV2

/**
 * State bytes by key hash, as one task wrote them to one column family.
 *
 * @param name  of operator, store and family
 * @param grows whether a key's rows add up over batches; else the bytes are all that the family holds of the
 *              key
 */
final case class FamilySizes(name: String, grows: Boolean, hashes: Array[Int], bytes: Array[Long])

/**
 * What one task measured of one store in its partition: all its bytes (-1: not known), and those of the
 * tracked keys it wrote.
 */
final case class TaskSizes(partition: Int, store: String, storeBytes: Long, families: Seq[FamilySizes])

/**
 * Carries what the tasks of a stage measured to the driver, one item a store, with the task's end. The
 * driver's copy stays empty.
 */
final class KeySizes extends AccumulatorV2[TaskSizes, Seq[TaskSizes]] {
  private var sizes = Seq.empty[TaskSizes]
  override def isZero: Boolean = sizes.isEmpty
  override def copy(): KeySizes = { val other = new KeySizes; other.sizes = sizes; other }
  override def reset(): Unit = sizes = Nil
  override def add(found: TaskSizes): Unit = sizes = sizes :+ found
  override def merge(other: AccumulatorV2[TaskSizes, Seq[TaskSizes]]): Unit = ()
  override def value: Seq[TaskSizes] = sizes
}

/**
 * The state bytes of a query's tracked keys, as far as they were ever measured. For a family that keeps one
 * row a key it is the size of the row last written; for one that grows, what the last `window` batches wrote
 * (the Mixed paper's S(k, w)). Driver; not thread-safe.
 *
 * @param most how many keys are remembered; those written longest ago go first
 */
final class StateMemory(most: Int, window: Int = StateMemory.Window) {
  private final class Known(var lasting: Map[String, Long], var grown: Map[(String, Int, Long), Long])
  private val keys = mutable.LinkedHashMap.empty[Int, Known]
  private val partitions = mutable.HashMap.empty[(Int, String), Long]

  /** What a task measured, a store each; an attempt that comes again overwrites the first. */
  def learn(batch: Long, sizes: Seq[TaskSizes]): Unit = {
    sizes.foreach { task =>
      if (task.storeBytes >= 0) partitions(task.partition -> task.store) = task.storeBytes
      for (family <- task.families; i <- family.hashes.indices)
        learn(batch, task.partition, family, family.hashes(i), family.bytes(i))
    }
    while (keys.size > most) keys.remove(keys.head._1)
  }

  /** Of a key that is split several partitions write in one batch, and what grows there adds up. */
  private def learn(batch: Long, partition: Int, family: FamilySizes, hash: Int, bytes: Long): Unit = {
    val one = keys.remove(hash).getOrElse(new Known(Map.empty, Map.empty))
    if (family.grows)
      one.grown = one.grown
        .filter { case ((_, _, written), _) => written > batch - window } +
        ((family.name, partition, batch) -> bytes)
    else one.lasting += family.name -> bytes
    keys(hash) = one
  }

  /** What is known now, for `n` partitions. */
  def known(n: Int): KnownState = {
    val sums = partitions.groupMapReduce(_._1._1)(_._2)(_ + _)
    val bytes = keys.values.map(one => one.lasting.values.sum + one.grown.values.sum)
    KnownState(keys.keys.toArray, bytes.toArray, Array.tabulate(n)(sums.getOrElse(_, -1L)))
  }
}

/**
 * The keys whose state bytes were ever measured, those bytes, and all state bytes by partition; -1 where
 * nothing is known.
 */
final case class KnownState(hashes: Array[Int], bytes: Array[Long], partitionBytes: Array[Long])

object StateMemory {
  val Window = 8
}
