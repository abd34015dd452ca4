// In Spark's package because expressions are evaluated through Catalyst's private API.
package org.apache.spark.sql.skewless.split

import scala.util.control.NonFatal

import io.skewless.observe.ValueSample
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, ToPrettyString}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.unsafe.types.UTF8String

/** A row's key as text for people, as `show` would print it; lives in one map task. */
final class KeyText(keys: Seq[Expression], values: ValueSample) {
  private val texts = keys.map(key => ToPrettyString(key, Some(SQLConf.get.sessionLocalTimeZone)))

  def wanted: Boolean = values.wanted

  /** Hands in the row's key. A key that cannot be rendered has no text: no reason to fail the row. */
  def take(row: InternalRow): Unit = values.take(
    try KeyText.short(texts.map(text => KeyText.start(text.eval(row))).mkString(", "))
    catch { case NonFatal(_) => null }
  )
}

private[skewless] object KeyText {
  val MaxCharacters = 64

  /** Of a long text only as much as may be shown. */
  private def start(text: Any): String =
    text.asInstanceOf[UTF8String].substring(0, MaxCharacters + 1).toString

  /** One line of bounded length: whatever would break or disguise a line becomes a space. */
  private[skewless] def short(text: String): String = {
    val points = text.codePoints().map(point => if (isPlain(point)) point else ' ').toArray
    if (points.length <= MaxCharacters) new String(points, 0, points.length)
    else new String(points, 0, MaxCharacters - 1) + "\u2026"
  }

  private def isPlain(point: Int): Boolean = Character.getType(point).toByte match {
    case Character.CONTROL | Character.FORMAT | Character.SURROGATE | Character.LINE_SEPARATOR |
        Character.PARAGRAPH_SEPARATOR =>
      false
    case _ => true
  }
}
