// In Spark's package because all that knows how Spark lays out state is.
package org.apache.spark.sql.skewless.state

import org.apache.spark.unsafe.Platform

/**
 * How Spark lays out the elements of a list state under one key: length, bytes, delimiter (empty by default),
 * and so on.
 */
private[skewless] object ListValue {
  def elements(value: Array[Byte], delimiterBytes: Int): List[Array[Byte]] = {
    val found = List.newBuilder[Array[Byte]]
    var at = 0
    while (at < value.length) {
      val end = at + 4 + Platform.getInt(value, Platform.BYTE_ARRAY_OFFSET + at)
      found += value.slice(at, end)
      at = end + delimiterBytes
    }
    found.result()
  }
}
