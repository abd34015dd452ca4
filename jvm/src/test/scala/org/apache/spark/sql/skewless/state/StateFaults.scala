package org.apache.spark.sql.skewless.state

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._

import io.skewless.table.Table
import org.apache.spark.{MapOutputTrackerMaster, SparkEnv, SparkException, TaskContext}
import org.apache.spark.shuffle.FetchFailedException
import org.apache.spark.sql.{ForeachWriter, Row}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.{Event, Operator, Queries, SparkPrivate, StatefulRun}
import org.apache.spark.storage.BlockManagerId
import org.scalatest.Assertions

/** Runs a query whose tasks fail in a batch that swaps tables. */
trait StateFaults extends StatefulRun { this: Assertions =>

  /** Runs the query with swaps before the given batches, its rows going through a writer that can fail. */
  private[skewless] def withFault(
      operator: Operator,
      format: String,
      batches: Seq[Seq[Event]],
      swaps: Map[Long, Table],
      fault: Fault
  ): Unit =
    withConf(operator.conf :+ SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> format: _*) {
      val expected = plain(operator, batches)
      withRun(operator.query, operator.mode, ours) { run =>
        Fault.rows.clear()
        val query = operator
          .query(run.source)
          .writeStream
          .option("checkpointLocation", run.checkpoint)
          .outputMode(operator.mode)
          .foreach(new FaultyWriter(fault))
          .start()
        batches.zipWithIndex.foreach { case (rows, i) =>
          swaps.get(i.toLong).foreach(Queries.publish(query, _, limits))
          run.stream.addData(rows)
          query.processAllAvailable()
        }
        assert(fault.fired.get() > 0, "the fault did fire")
        val found = Fault.rows.asScala.groupMap(_._1._1)(_._2).view.mapValues(_.flatten.toSeq.sorted).toMap
        expected.rows.foreach { case (batch, rows) =>
          assert(found.getOrElse(batch, Nil) == rows, s"batch $batch")
        }
        SparkPrivate.drainListeners(spark.sparkContext)
        assert(Queries.swaps(query).count(_.rows > 0) == swaps.size, "state did move")
      }
    }
}

/** What goes wrong in a task, once its rows are all written and its state is committed. */
private[skewless] trait Fault extends Serializable {
  def fired: AtomicInteger = Fault.fired
  def afterCommit(partition: Long, batch: Long): Unit
}

private[skewless] object Fault {
  val fired = new AtomicInteger
  val rows = new ConcurrentHashMap[(Long, Long), Seq[String]]()
}

private[skewless] final class FailsAfterCommit(batch: Long) extends Fault {
  Fault.fired.set(0)
  override def afterCommit(partition: Long, now: Long): Unit =
    if (now == batch && TaskContext.get().attemptNumber() == 0) {
      fired.incrementAndGet()
      throw new SparkException("injected: the task fails after its state commit")
    }
}

/**
 * The first tasks to finish commit; the next one finds a map output gone, and Spark runs that map task again.
 */
private[skewless] final class LosesMapOutput(batch: Long) extends Fault {
  Fault.fired.set(0)
  override def afterCommit(partition: Long, now: Long): Unit =
    if (
      now == batch && partition == 3 && TaskContext.get().stageAttemptNumber() == 0 && fired
        .getAndIncrement() == 0
    ) {
      val tracker = SparkEnv.get.mapOutputTracker.asInstanceOf[MapOutputTrackerMaster]
      val shuffle = tracker.shuffleStatuses.keys.max
      tracker.unregisterMapOutput(shuffle, 0, SparkEnv.get.blockManager.blockManagerId)
      throw new FetchFailedException(
        BlockManagerId("lost", "nowhere", 1),
        shuffle,
        0L,
        0,
        partition.toInt,
        "injected"
      )
    }
}

/** Keeps the rows of each (batch, partition) of the attempt that ended well. */
private[skewless] final class FaultyWriter(fault: Fault) extends ForeachWriter[Row] {
  private var at = (0L, 0L)
  private val rows = scala.collection.mutable.ArrayBuffer.empty[String]

  override def open(partition: Long, batch: Long): Boolean = {
    at = (batch, partition)
    rows.clear()
    true
  }

  override def process(row: Row): Unit = { rows += row.toString; () }

  override def close(error: Throwable): Unit = if (error == null) {
    fault.afterCommit(at._2, at._1)
    Fault.rows.put(at, rows.toSeq)
    ()
  }
}
