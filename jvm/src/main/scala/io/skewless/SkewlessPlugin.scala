package io.skewless

import java.util.{Collections, Map => JMap}

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.sql.skewless.{SharedTable, SwapListener}

/** `spark.plugins`: the driver's part checks settings and listens to tasks; the executors' part checks that they run the same jar. */
class SkewlessPlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new SkewlessDriver
  override def executorPlugin(): ExecutorPlugin = new SkewlessExecutor
}

final class SkewlessDriver extends DriverPlugin {
  var conf: SkewlessConf = _
  var listener: LoadListener = _
  var metrics: QueryMetrics = _

  override def init(context: SparkContext, plugin: PluginContext): JMap[String, String] = {
    SparkLine.check(context.version)
    conf = SkewlessConf(context.getConf)
    listener = new LoadListener(conf.retainedBatches, conf.trackedKeys)
    metrics = new QueryMetrics(plugin.metricRegistry())
    context.addSparkListener(listener)
    context.addSparkListener(new SwapListener)
    SkewlessPlugin.running = Some(context -> this)
    Collections.singletonMap(SkewlessExecutor.VersionKey, SparkLine.JarVersion)
  }

  override def shutdown(): Unit = {
    SkewlessPlugin.running = None
    if (metrics != null) metrics.clear()
    SharedTable.forget()
  }
}

final class SkewlessExecutor extends ExecutorPlugin {
  override def init(plugin: PluginContext, fromDriver: JMap[String, String]): Unit = {
    SparkLine.check()
    val driver = fromDriver.get(SkewlessExecutor.VersionKey)
    if (driver != SparkLine.JarVersion)
      throw SkewlessException.version(
        s"the driver runs Skewless $driver, this executor ${SparkLine.JarVersion}. Remove the other jar from the executor's class path."
      )
  }
}

object SkewlessExecutor {
  val VersionKey = "jarVersion"
}

object SkewlessPlugin {
  @volatile private[skewless] var running: Option[(SparkContext, SkewlessDriver)] = None

  /** The plugin of this application, if it was switched on. */
  def driverOf(context: SparkContext): Option[SkewlessDriver] = running.collect { case (`context`, driver) => driver }
}
