// In Spark's package because these are private to Spark.
package org.apache.spark.sql.skewless

import java.io.File

import org.apache.spark.SparkContext
import org.apache.spark.util.Utils

/** The few private things that suites outside Spark's package need. */
object SparkPrivate {

  /** Waits until every listener has seen what happened so far. */
  def drainListeners(context: SparkContext): Unit = context.listenerBus.waitUntilEmpty()

  def deleteRecursively(file: File): Unit = Utils.deleteRecursively(file)
}
