package io.skewless.observe

import scala.collection.mutable

import org.apache.datasketches.frequencies.LongsSketch
import org.json4s.{JObject, JString}
import org.json4s.jackson.JsonMethods.{compact, render}

/**
 * Values of keys as text, by key hash: two at most for a hash, since different keys may share one. Travels
 * with a task's end, whose accumulators Spark writes to its event log and its pages by `toString`: that must
 * not show them.
 */
final class KeyValues(val byHash: Map[Int, Set[String]]) extends Serializable {
  def ++(other: KeyValues): KeyValues =
    if (other.byHash.isEmpty) this
    else
      new KeyValues(other.byHash.foldLeft(byHash) { case (all, (hash, values)) =>
        val known = all.getOrElse(hash, Set.empty)
        if (all.size >= KeyValues.MaxKeys && known.isEmpty) all
        else all.updated(hash, (known ++ values).toSeq.sorted.take(2).toSet)
      })

  override def toString: String = s"values of ${byHash.size} keys"
}

object KeyValues {
  val None: KeyValues = new KeyValues(Map.empty)

  /** Most keys of a batch whose values the driver keeps. */
  val MaxKeys = 10000

  /** As people read them. */
  def merge(parts: Iterable[KeyValues]): Map[Int, String] =
    parts.foldLeft(None)(_ ++ _).byHash.map { case (hash, values) =>
      hash -> values.toSeq.sorted.mkString(" or ")
    }

  def json(values: Map[Int, String]): String =
    compact(render(JObject(values.toList.map { case (hash, text) => hash.toString -> JString(text) })))
}

/**
 * Takes the values of keys that stand out in one map task: those that have at least one in `tracked` of the
 * rows seen so far, so there are `tracked` of them at most. A value is rendered only for a sampled row of
 * such a key that has no value yet.
 */
final class ValueSample(tracked: Int) {
  private val values = mutable.LongMap.empty[String] // null: it could not be rendered
  private var hash = 0
  private var asks = false

  /** Called by the sampler for each row it looks at, before `wanted` is asked. */
  def consider(seen: Int, sketch: LongsSketch): Unit = {
    hash = seen
    asks = !values.contains(seen.toLong) && standsOut(seen.toLong, sketch) && hasRoom(sketch)
  }

  /** Whether the value of the row that was just counted is to be handed in. */
  def wanted: Boolean = asks

  def take(text: String): Unit = {
    asks = false
    values.update(hash.toLong, text)
  }

  def found(sketch: LongsSketch): KeyValues = new KeyValues(
    values.iterator.collect {
      case (hash, text) if text != null && standsOut(hash, sketch) => hash.toInt -> Set(text)
    }.toMap
  )

  private def standsOut(hash: Long, sketch: LongsSketch): Boolean =
    sketch.getLowerBound(hash) * tracked >= sketch.getStreamLength

  private def hasRoom(sketch: LongsSketch): Boolean = {
    if (values.size >= tracked) values.filterInPlace((hash, _) => standsOut(hash, sketch))
    values.size < tracked
  }
}
