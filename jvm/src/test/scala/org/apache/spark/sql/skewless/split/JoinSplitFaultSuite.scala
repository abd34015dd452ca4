package org.apache.spark.sql.skewless.split

import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import io.skewless.table.{Left, Right, Table}
import org.apache.spark.sql.skewless.{FullMatrix, JoinSplits, Operator, Queries}
import org.apache.spark.sql.skewless.state.{FailsAfterCommit, Fault, LosesMapOutput, StateFaults}
import org.scalatest.funsuite.AnyFunSuite

/** Batches that start, grow, shift, shrink and end a split, and do not go well the first time. */
class JoinSplitFaultSuite extends AnyFunSuite with JoinSplits with StateFaults {
  private val batches = joinInput(8)
  private lazy val others = hashes(batches, "k") - hotHash

  private def cases(kinds: Seq[(String, Int, String)]): Seq[(Operator, Map[Int, Table], String)] = for {
    (kind, joinFormat, format) <- kinds
    side = if (kind == "right_outer") Right else Left
    operator = joinOf(kind, "spark.sql.streaming.join.stateFormatVersion" -> joinFormat.toString)
  } yield (operator, course(side, others), format)

  private val quick = Seq(("left_outer", 3, "2"), ("right_outer", 2, "1"))
  private val full = for {
    kind <- Seq("inner", "left_outer", "left_semi", "right_outer")
    joinFormat <- Seq(2, 3)
    format <- Seq("1", "2")
  } yield (kind, joinFormat, format)

  private lazy val chosen = cases(if (FullMatrix.on) full else quick)

  /** Some of what is tried, where not everything is. */
  private def some[T](all: Seq[T])(few: Seq[T] => Seq[T]): Seq[T] = if (FullMatrix.on) all else few(all)

  private def faults(batch: Long): Seq[(String, () => Fault)] = Seq(
    "every task fails once after its state commit" -> (() => new FailsAfterCommit(batch)),
    "a map output is lost" -> (() => new LosesMapOutput(batch))
  )

  test("tasks that fail after their commit, and lost map outputs, in each swap") {
    val all =
      for (one <- chosen; batch <- Seq(1L, 2L, 3L, 5L, 6L); fault <- faults(batch)) yield (one, batch, fault)
    val few = Seq(2, 7, 13) // growing and shrinking, either fault, either case
    for (((operator, tables, format), batch, (what, fault)) <- some(all)(few.map(_))) {
      val until = batches.take(batch.toInt + 2)
      val before = tables.collect { case (at, table) if at < until.size => at.toLong -> table }
      withClue(s"$what in batch $batch, ${operator.name}, format $format: ")(
        withFault(operator, format, until, before, fault())
      )
    }
  }

  private def check(operator: Operator, tables: Map[Int, Table], format: String)(
      each: (Run, Int) => Unit
  ): Unit =
    withConf(operator.conf :+ "spark.sql.streaming.stateStore.checkpointFormatVersion" -> format: _*) {
      withRun(operator.query, operator.mode, ours) { run =>
        batches.indices.foreach(each(run, _))
        same(run.outcome, plain(operator, batches))
        assert(tables.nonEmpty)
      }
    }

  test("every batch is replayed in a run of its own, with its commit gone") {
    for ((operator, tables, format) <- some(chosen)(_.take(1)))
      check(operator, tables, format) { (run, batch) =>
        val first = run.start()
        run.stream.addData(batches(batch))
        first.processAllAvailable()
        (batch + 1 until batch + 2)
          .foreach(next => tables.get(next).foreach(Queries.publish(first, _, limits)))
        first.stop()
        forget(run, batch)
        run.seen.remove(batch.toLong)
        val again = run.start()
        again.processAllAvailable()
        again.stop()
        assert(run.seen.containsKey(batch.toLong), "the batch ran again")
      }
  }

  private def forget(run: Run, batch: Int): Unit = {
    val commits = Path.of(run.checkpoint, "commits")
    assert(Files.deleteIfExists(commits.resolve(batch.toString)))
    Files.deleteIfExists(commits.resolve(s".$batch.crc"))
    ()
  }

  test("two actions in each batch") {
    for ((operator, tables, format) <- some(chosen)(_.drop(1)))
      withConf(operator.conf :+ "spark.sql.streaming.stateStore.checkpointFormatVersion" -> format: _*) {
        val expected = plain(operator, batches)
        withRun(operator.query, operator.mode, ours) { run =>
          val counts = new ConcurrentHashMap[Long, Long]()
          val query = run.start { (rows, id) => counts.put(id, rows.count()); run.collect(rows, id) }
          batches.zipWithIndex.foreach { case (rows, i) =>
            tables.get(i).foreach(Queries.publish(query, _, limits))
            run.stream.addData(rows)
            query.processAllAvailable()
          }
          same(run.outcome, expected)
          assert(counts.asScala.forall { case (batch, rows) => rows == expected.rows(batch).size })
        }
      }
  }
}
