package io.skewless

import java.util.{Collections, Map => JMap}

import io.skewless.observe.{Application, BatchListener, QueryMetrics}
import io.skewless.table.SharedTable
import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.sql.skewless.query.QueryRegistry
import org.apache.spark.sql.skewless.ui.SkewlessTab

/**
 * `spark.plugins`: the driver's part checks settings, listens to tasks and puts the tab into Spark's UI;
 * the executors' part checks that they run the same jar.
 */
class SkewlessPlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new SkewlessDriver
  override def executorPlugin(): ExecutorPlugin = new SkewlessExecutor
}

final class SkewlessDriver extends DriverPlugin {
  private var context: SparkContext = _
  private var metrics: QueryMetrics = _

  override def init(context: SparkContext, plugin: PluginContext): JMap[String, String] = {
    SparkLine.check(context.version)
    this.context = context
    val conf = SkewlessConf(context.getConf)
    val listener =
      new BatchListener(conf.retainedBatches, conf.trackedKeys, QueryRegistry.of(context), context.getConf)
    metrics = new QueryMetrics(plugin.metricRegistry())
    context.addSparkListener(listener)
    Application.start(context, new Application(conf, listener, metrics))
    SkewlessTab.attach(context)
    Collections.singletonMap(SkewlessExecutor.VersionKey, SparkLine.JarVersion)
  }

  /** Nothing of the application may be found by the next one in this process. */
  override def shutdown(): Unit = {
    Application.stop()
    QueryRegistry.forget(context)
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
        s"the driver runs Skewless $driver, this executor ${SparkLine.JarVersion}. Remove the other jar " +
          "from the executor's class path."
      )
  }
}

object SkewlessExecutor {
  val VersionKey = "jarVersion"
}
