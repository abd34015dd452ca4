package io.skewless.observe

import io.skewless.SkewlessConf
import org.apache.spark.SparkContext

/**
 * What one application with the plugin keeps in its driver. Made and ended by the plugin, found by its
 * SparkContext: nothing of an application that has stopped is found by the next one in the same process.
 */
final class Application(val conf: SkewlessConf, val listener: BatchListener, val metrics: QueryMetrics)

object Application {
  @volatile private var running: Option[(SparkContext, Application)] = None

  /** None if the application has no plugin. */
  def of(context: SparkContext): Option[Application] = running.collect { case (`context`, application) =>
    application
  }

  private[skewless] def start(context: SparkContext, application: Application): Unit =
    running = Some(context -> application)

  private[skewless] def stop(): Unit = running = None
}
