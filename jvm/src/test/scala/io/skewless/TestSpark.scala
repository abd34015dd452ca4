package io.skewless

import io.skewless.observe.Application
import org.apache.spark.SparkContext
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.skewless.{HaltingFileSystem, QuickLocalFileSystem, SkewlessExtensions}
import org.scalatest.Assertions

/**
 * One local session with plugin and extension for all suites that need Spark: they run one after another in
 * one JVM, and starting a session is what costs time. A suite that changes a setting gives it back with
 * `withConf`.
 */
trait TestSpark { this: Assertions =>

  protected lazy val spark: SparkSession = TestSpark.session

  /** Runs the body under session settings, and sets them back. */
  protected def withConf[T](pairs: (String, String)*)(body: => T): T = {
    val before = pairs.map { case (key, _) => key -> spark.conf.getOption(key) }
    pairs.foreach { case (key, value) => spark.conf.set(key, value) }
    try body
    finally before.foreach { case (key, value) => value.fold(spark.conf.unset(key))(spark.conf.set(key, _)) }
  }

  /** The refusal that the body must end in, with the code of the Python class that users see. */
  protected def refusal(code: String)(body: => Any): SkewlessException = Refusals.refusal(code)(body)
}

object TestSpark {
  private lazy val session: SparkSession = SparkSession
    .builder()
    .master("local[4,2]") // four tasks at once, two tries each
    .appName("skewless suites")
    .config("spark.plugins", classOf[SkewlessPlugin].getName)
    .config("spark.sql.extensions", classOf[SkewlessExtensions].getName)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "4")
    .config("spark.sql.warehouse.dir", "target/spark-warehouse")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.autoBroadcastJoinThreshold", "-1")
    .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    .config("spark.hadoop.fs.halt.impl", classOf[HaltingFileSystem].getName)
    .config(QuickLocalFileSystem.conf)
    .getOrCreate()

  /** Runs the body under other settings of Skewless than the application was started with. */
  def withApplicationConf[T](conf: SkewlessConf)(body: => T): T =
    withApplicationConf(session.sparkContext, conf)(body)

  /** State travels in scratch files, however little it is. */
  def withFiles[T](context: SparkContext = session.sparkContext)(body: => T): T =
    withApplicationConf(context, new SkewlessConf(Map(SkewlessConf.CarriedBytes.key -> "0")))(body)

  private def withApplicationConf[T](context: SparkContext, conf: SkewlessConf)(body: => T): T = {
    val before = Application.of(context).get
    Application.start(context, new Application(conf, before.listener, before.metrics))
    try body
    finally Application.start(context, before)
  }
}

object Refusals extends Assertions {

  /** The refusal that the body must end in, with the code of the Python class that users see. */
  def refusal(code: String)(body: => Any): SkewlessException = {
    val error = intercept[SkewlessException](body)
    assert(error.code == code, error.getMessage)
    error
  }
}
