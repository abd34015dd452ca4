package org.apache.spark.sql.skewless.state

import io.skewless.TestSpark
import io.skewless.table.Table
import org.apache.spark.sql.skewless.{Event, FullMatrix, Operator, Queries, SparkPrivate, StatefulRun}
import org.scalatest.funsuite.AnyFunSuite

/**
 * State follows its key: every operator, plain and with tables swapped between batches, gives the same rows
 * in every batch.
 */
class StateSwapSuite extends AnyFunSuite with StatefulRun {

  /** Swaps before batches 2, 4, 5 and 6: move, move others, return some, return all. */
  private def swapped(operator: Operator, batches: Seq[Seq[Event]], inFiles: Boolean) =
    withRun(operator.query, operator.mode, ours) { run =>
      val all = hashes(batches, operator.keys: _*)
      val swaps = Map(2 -> table(all, 1), 4 -> table(all, 2), 5 -> table(all, 5), 6 -> Table.empty(n))
      val query = run.start()
      batches.zipWithIndex.foreach { case (rows, i) =>
        swaps.get(i).foreach(t => Queries.publish(query, t, limits))
        run.stream.addData(rows)
        query.processAllAvailable()
      }
      SparkPrivate.drainListeners(spark.sparkContext)
      val records = Queries.swaps(query)
      assert(records.map(_.epoch) == Seq(1, 2, 3, 4), "every swap was carried out")
      assert(
        records.forall(r => r.rows > 0 && r.sources.nonEmpty && r.targets.nonEmpty),
        s"state did move: $records"
      )
      assert(records.forall(r => (r.files > 0) == inFiles), s"state travelled that way: $records")
      assert(
        !java.nio.file.Files.exists(run.dir.resolve("checkpoint/_skewless/moves")) || run.scratch.isEmpty,
        "scratch is removed"
      )
      run.outcome
    }

  for (
    (operator, i) <- Operator.all.zipWithIndex;
    format <- if (FullMatrix.on) Seq("1", "2") else Seq((i % 2 + 1).toString);
    inFiles <- if (FullMatrix.on) Seq(false, true) else Seq(i / 2 % 2 == 1)
  )
    test(s"${operator.name}, checkpoint format $format, ${if (inFiles) "in files" else "carried"}") {
      val confs = operator.conf :+ "spark.sql.streaming.stateStore.checkpointFormatVersion" -> format
      withConf(confs: _*) {
        val batches = input(9)
        def found = swapped(operator, batches, inFiles)
        same(if (inFiles) TestSpark.withFiles()(found) else found, plain(operator, batches))
      }
    }
}
