package org.apache.spark.sql.skewless.route

import java.nio.file.Files
import java.util.concurrent.ConcurrentLinkedQueue

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, ForeachWriter, Row}
import org.apache.spark.sql.execution.streaming.RealTimeTrigger
import org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.{Event, Queries, StatefulRun}
import org.apache.spark.sql.streaming.{StreamingQuery, StreamingQueryException, Trigger}
import org.scalatest.concurrent.Eventually
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.{Seconds, Span}

/**
 * From 4.3 on Real-Time Mode runs stateful operators, over shuffles whose rows go on before the batch ends.
 * No state of ours may be under them, and plain state must not notice us.
 */
class RealTimeSuite extends AnyFunSuite with StatefulRun with Eventually {
  implicit override val patienceConfig: PatienceConfig = PatienceConfig(Span(60, Seconds), Span(1, Seconds))

  private val realTime = RealTimeTrigger("5 seconds")
  private val microBatch = Trigger.ProcessingTime(0)
  private val rows = input(2)

  private def keys(batches: Seq[Seq[Event]]) = batches.flatten.map(e => Row(e.k).toString).toSet

  private def withStream(
      body: (LowLatencyMemoryStream[Event], (Trigger, String) => StreamingQuery) => Unit
  ): Unit = {
    val dir = Files.createTempDirectory("skewless-real-time")
    val stream = LowLatencyMemoryStream[Event](spark, 1)
    val distinct: DataFrame = stream.toDF().dropDuplicates("k").select("k")
    def start(trigger: Trigger, provider: String): StreamingQuery =
      withConf(
        SQLConf.STATE_STORE_PROVIDER_CLASS.key -> provider,
        SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> "2",
        SQLConf.SHUFFLE_PARTITIONS.key -> "2"
      ) {
        distinct.writeStream
          .option("checkpointLocation", dir.resolve("checkpoint").toString)
          .outputMode("update")
          .trigger(trigger)
          .foreach(new Noting)
          .start()
      }
    Noting.rows.clear()
    try body(stream, start)
    finally {
      spark.streams.active.foreach(_.stop())
      org.apache.spark.util.Utils.deleteRecursively(dir.toFile)
    }
  }

  test("a query in a session with Skewless's provider is refused by Spark, which names the setting") {
    withStream { (_, start) =>
      val error = intercept[IllegalArgumentException](start(realTime, ours))
      assert(error.getMessage.contains(SQLConf.STATE_STORE_PROVIDER_CLASS.key), error.getMessage)
    }
  }

  test(
    "a checkpoint whose state Skewless keeps is refused before a row is read, and goes on in micro-batches"
  ) {
    withStream { (stream, start) =>
      stream.addData(rows.head)
      val first = start(microBatch, ours)
      first.processAllAvailable()
      Queries.publish(first, table(hashes(rows, "k"), 1, n = 2), limits)
      first.stop()
      stream.addData(rows(1))
      val error = intercept[StreamingQueryException](start(realTime, stock).awaitTermination(60000))
      assert(error.getMessage.contains("runs in Real-Time Mode"), error.getMessage)
      assert(Noting.rows.asScala.toSet == keys(rows.take(1)))
      start(microBatch, ours).processAllAvailable()
      assert(Noting.rows.asScala.toSet == keys(rows))
      assert(Noting.rows.size == keys(rows).size, "each key once")
    }
  }

  test("with Spark's provider it runs as in plain Spark, and takes no table") {
    withStream { (stream, start) =>
      stream.addData(rows.head)
      val query = start(realTime, stock)
      eventually(assert(Noting.rows.asScala.toSet == keys(rows.take(1))))
      stream.addData(rows(1))
      eventually(assert(Noting.rows.asScala.toSet == keys(rows)))
      val message =
        refusal("QueryError")(Queries.publish(query, table(hashes(rows, "k"), 1, n = 2), limits)).getMessage
      assert(message.contains("does not run in micro-batches"), message)
      assert(query.isActive && Noting.rows.size == keys(rows).size, "each key once")
    }
  }
}

private object Noting {
  val rows = new ConcurrentLinkedQueue[String]()
}

private final class Noting extends ForeachWriter[Row] {
  override def open(partition: Long, batch: Long): Boolean = true
  override def process(row: Row): Unit = { Noting.rows.add(row.toString); () }
  override def close(error: Throwable): Unit = ()
}
