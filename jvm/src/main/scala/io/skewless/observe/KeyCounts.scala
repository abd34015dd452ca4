package io.skewless.observe

import org.apache.datasketches.frequencies.{ErrorType, LongsSketch}
import org.apache.datasketches.memory.Memory
import org.apache.spark.TaskContext
import org.apache.spark.util.AccumulatorV2

/**
 * What one map task saw of one exchange: the sketch of its rows by key hash, and, where asked for, values of
 * keys.
 */
final case class KeyCount(mapPartition: Int, sketch: Array[Byte], values: KeyValues = KeyValues.None)

object KeyCount {
  val None: KeyCount = KeyCount(-1, Array.emptyByteArray)
}

/**
 * Carries the sketches of an exchange's map tasks to the driver, with the task's end. One a batch and
 * exchange; the driver's own copy stays empty, `KeyRecorder` takes each task's part and keeps the newest of
 * each map partition, so that retries count once.
 *
 * @param tracked most keys that a sketch holds
 * @param values  whether the values of hot keys are taken too
 */
final class KeyCounts(tracked: Int, values: Boolean = false) extends AccumulatorV2[KeyCount, KeyCount] {
  private var count = KeyCount.None // never null: heartbeats hand out the value of a task that still runs
  override def isZero: Boolean = count eq KeyCount.None
  override def copy(): KeyCounts = { val other = new KeyCounts(tracked, values); other.count = count; other }
  override def reset(): Unit = count = KeyCount.None
  override def add(found: KeyCount): Unit = count = found
  override def merge(other: AccumulatorV2[KeyCount, KeyCount]): Unit = ()
  override def value: KeyCount = count

  /** A sampler for the current task, or null outside one; its sketch is handed over when the task ends. */
  def sampler(): KeySampler = Option(TaskContext.get()).map { task =>
    val sampler =
      new KeySampler(tracked, task.taskAttemptId(), if (values) new ValueSample(tracked) else null)
    task.addTaskCompletionListener[Unit](_ =>
      add(KeyCount(task.partitionId(), sampler.bytes, sampler.keyValues))
    )
    sampler
  }.orNull
}

/**
 * Counts rows by key hash in a frequent-items sketch (Misra-Gries, Apache DataSketches): every row at first,
 * then one in `Stride` on average, at random gaps, with its weight. Called for each row of a map task;
 * allocates nothing per row.
 *
 * @param values takes the values of hot keys among the rows looked at; null where nobody asked for them
 */
final class KeySampler(tracked: Int, seed: Long, val values: ValueSample = null) {
  import KeySampler._

  private val sketch = new LongsSketch(tracked)
  private var random = seed * 0x9e3779b97f4a7c15L | 1
  private var exact = ExactRows
  private var skip = 0

  def see(hash: Int): Unit =
    if (exact > 0) {
      exact -= 1
      count(hash, 1)
    } else if (skip > 0) skip -= 1
    else {
      count(hash, Stride)
      random ^= random << 13
      random ^= random >>> 7
      random ^= random << 17
      skip = (random >>> 33).toInt % (2 * Stride - 1) // on average Stride - 1
    }

  private def count(hash: Int, rows: Int): Unit = {
    sketch.update(hash.toLong, rows.toLong)
    if (values ne null) values.consider(hash, sketch)
  }

  def bytes: Array[Byte] = sketch.toByteArray
  def keyValues: KeyValues = if (values eq null) KeyValues.None else values.found(sketch)
}

object KeySampler {
  val ExactRows = 8192
  val Stride = 8
}

/**
 * The key hashes of a batch with most rows first: estimated rows, and by how much the sketch may be wrong.
 *
 * @param rightRows of `rows`, those of the right side of a join; empty where there is none
 */
final case class HotKeys(
    hashes: Array[Int],
    rows: Array[Long],
    maxError: Long,
    rightRows: Array[Long] = Array.emptyLongArray
)

object HotKeys {

  /** `right` are those of `parts` that counted the right side of a join. */
  def merge(parts: Iterable[KeyCount], tracked: Int, right: Iterable[KeyCount] = Nil): HotKeys = {
    val all = sketch(parts, tracked)
    val items = all.getFrequentItems(0, ErrorType.NO_FALSE_NEGATIVES)
    val hashes = items.map(_.getItem.toInt)
    val ofRight = if (right.isEmpty) None else Some(sketch(right, tracked))
    HotKeys(
      hashes,
      items.map(_.getEstimate),
      all.getMaximumError,
      ofRight.fold(Array.emptyLongArray)(sketch => hashes.map(hash => sketch.getEstimate(hash.toLong)))
    )
  }

  private def sketch(parts: Iterable[KeyCount], tracked: Int): LongsSketch = {
    val all = new LongsSketch(tracked)
    parts.foreach(part => all.merge(LongsSketch.getInstance(Memory.wrap(part.sketch))))
    all
  }
}
