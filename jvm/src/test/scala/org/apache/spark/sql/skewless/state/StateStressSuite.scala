package org.apache.spark.sql.skewless.state

import java.nio.file.Files

import scala.jdk.CollectionConverters._
import scala.util.Random

import io.skewless.table.Table
import org.apache.spark.SparkException
import org.apache.spark.TaskContext
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.{Event, FullMatrix, Operator, Queries, StatefulRun}
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.funsuite.AnyFunSuite

/**
 * Random input, tables and faults, batch after batch: swaps, restarts, replays of a committed batch, tasks
 * that fail after their state commit. A failure names its seed; -Dskewless.seed runs it again. The full
 * matrix draws new seeds.
 */
class StateStressSuite extends AnyFunSuite with StatefulRun {

  private val first = Option(System.getProperty("skewless.seed")).map(_.toInt).getOrElse {
    if (FullMatrix.on) new Random().nextInt(1000000) else 843157
  }
  private val rounds = if (FullMatrix.on) 12 else 2

  private val operators = Seq(
    "count",
    "collect_list (object hash aggregate)",
    "dropDuplicates",
    "flatMapGroupsWithState",
    "transformWithState, value, list and map"
  ).map(Operator.named)

  for (round <- 0 until rounds) {
    val seed = first + round
    test(s"random swaps and faults, seed $seed") {
      val random = new Random(seed)
      val operator = operators(random.nextInt(operators.size))
      val format = (1 + random.nextInt(2)).toString
      info(s"${operator.name}, checkpoint format $format")
      val batches = input(14, seed)
      withConf(operator.conf :+ SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> format: _*) {
        val expected = plain(operator, batches)
        withRun(operator.query, operator.mode, ours)(run => stress(run, operator, batches, expected, random))
      }
    }
  }

  private def stress(
      run: Run,
      operator: Operator,
      batches: Seq[Seq[Event]],
      expected: Outcome,
      random: Random
  ): Unit = {
    val keys = hashes(batches, operator.keys: _*).toSeq
    val done = scala.collection.mutable
      .Map("swap" -> 0, "restart" -> 0, "replay" -> 0, "failure" -> 0)
      .withDefaultValue(0)
    Fault.rows.clear()
    Fault.fired.set(0)
    var query = start(run, operator)
    var planned = true // a run that starts again takes no table before its first batch
    batches.zipWithIndex.foreach { case (rows, i) =>
      if (random.nextInt(2) == 0 && planned) {
        val moves =
          random.shuffle(keys).take(random.nextInt(keys.size + 1)).map(h => h -> Seq(random.nextInt(n)))
        Queries.publish(query, Table(n, moves.toMap), limits)
        done("swap") += 1
      }
      StressFault.failing = random.nextInt(4) == 0
      run.stream.addData(rows)
      query.processAllAvailable()
      planned = true
      if (StressFault.failing) done("failure") += 1
      StressFault.failing = false
      if (random.nextInt(5) == 0) {
        query.stop()
        if (random.nextBoolean()) {
          Seq(s"$i", s".$i.crc").foreach(f => Files.deleteIfExists(run.dir.resolve(s"checkpoint/commits/$f")))
          done("replay") += 1
        } else {
          done("restart") += 1
          planned = false
        }
        query = start(run, operator)
        query.processAllAvailable()
      }
    }
    info(done.toSeq.sorted.map { case (what, times) => s"$times x $what" }.mkString(", "))
    val found = Fault.rows.asScala.groupMap(_._1._1)(_._2).view.mapValues(_.flatten.toSeq.sorted).toMap
    expected.rows.foreach { case (batch, rows) =>
      assert(found.getOrElse(batch, Nil) == rows, s"batch $batch")
    }
    assert(done("swap") > 0)
    assert(Fault.fired.get() >= done("failure"), "in every batch that should, tasks did fail")
  }

  private def start(run: Run, operator: Operator): StreamingQuery = operator
    .query(run.source)
    .writeStream
    .option("checkpointLocation", run.checkpoint)
    .outputMode(operator.mode)
    .foreach(new FaultyWriter(new StressFault))
    .start()
}

private object StressFault {
  @volatile var failing = false
}

/** While it is switched on, every task fails once after its state commit. */
private final class StressFault extends Fault {
  override def afterCommit(partition: Long, batch: Long): Unit =
    if (StressFault.failing && TaskContext.get().attemptNumber() == 0) {
      fired.incrementAndGet()
      throw new SparkException("injected")
    }
}
