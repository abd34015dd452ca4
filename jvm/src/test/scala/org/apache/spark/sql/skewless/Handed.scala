package org.apache.spark.sql.skewless

import io.skewless.{SkewlessConf, TestSpark}
import org.apache.spark.sql.{DataFrame, SparkSessionExtensions}
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryCheckpointMetadata
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.query.Handover

/** What suites of adopting and releasing need: a session without Skewless, and what a checkpoint names. */
trait Handed extends StatefulRun { this: org.scalatest.Assertions =>

  /** A session of the same application without the extension: nothing of ours is in its plans. */
  protected lazy val plainSession: SparkSession = {
    val session = Handed.constructor
      .newInstance(spark.sparkContext, None, None, new SparkSessionExtensions, Map.empty, Map.empty)
      .asInstanceOf[SparkSession]
    spark.conf.getAll.foreach { case (key, value) =>
      if (session.conf.isModifiable(key)) session.conf.set(key, value)
    }
    session
  }

  /** The same rows, read by a session that knows nothing of Skewless. */
  protected def inPlainSession(df: DataFrame): DataFrame =
    Dataset.ofRows(plainSession, df.queryExecution.logical)

  /** Runs the body with the session settings of the plain session, and sets them back. */
  protected def withPlainConf[T](pairs: (String, String)*)(body: => T): T = {
    val before = pairs.map { case (key, _) => key -> plainSession.conf.getOption(key) }
    pairs.foreach { case (key, value) => plainSession.conf.set(key, value) }
    try body
    finally
      before.foreach { case (key, value) =>
        value.fold(plainSession.conf.unset(key))(plainSession.conf.set(key, _))
      }
  }

  protected def adopting[T](body: => T): T =
    TestSpark.withApplicationConf(new SkewlessConf(Map(SkewlessConf.Adopt.key -> "true")))(body)

  /** The class that each entry of the offset log names, by batch: "ours", "Spark's", or its name. */
  protected def owners(checkpoint: String): Map[Long, String] = {
    val log = new StreamingQueryCheckpointMetadata(spark, checkpoint, true).offsetLog
    log
      .get(None, None)
      .map { case (batch, entry) =>
        val provider = entry.metadataOpt.get.conf(SQLConf.STATE_STORE_PROVIDER_CLASS.key)
        batch -> (if (provider == Handover.Ours) "ours"
                  else if (provider == Handover.Sparks) "Spark's"
                  else provider)
      }
      .toMap
  }
}

private object Handed {

  /** Spark's own, which takes the extensions as they are given; the others read them from the application. */
  private val constructor = classOf[SparkSession].getDeclaredConstructors.maxBy(_.getParameterCount)
  constructor.setAccessible(true)
}
