package org.apache.spark.sql.skewless.checkpoint

import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._

import io.skewless.{BuiltFor, Repository}
import io.skewless.table.{Split, Table}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.{Event, Operator, Queries, SparkPrivate, SplitJoin, StatefulRun}
import org.scalatest.funsuite.AnyFunSuite

/**
 * A checkpoint written under one Spark line, with tables in force, goes on under that line and every later
 * one, with the rows of plain Spark: in the table that it was left in, through another swap, and back home.
 *
 * The checkpoints of a line are written once, by the last release for which it is the newest line:
 * {{{
 * build/sbt -Dskewless.line=4.2 -Dskewless.writeGolden=yes "jvm/testOnly *.GoldenCheckpointSuite"
 * }}}
 */
class GoldenCheckpointSuite extends AnyFunSuite with StatefulRun {
  private val written = 4 // batches in a checkpoint
  private val batches = input(7)
  private val formats = Seq("1", "2")
  private val lines = Files
    .readAllLines(Repository.file("python/skewless/spark/lines.txt"))
    .asScala
    .toSeq
    .filterNot(_.startsWith("#"))
    .map(_.split(" ").head)
  private val older = lines.init.take(lines.indexOf(BuiltFor.Line) + 1)

  private val operators = Map(
    "count" -> "count",
    "drop-duplicates" -> "dropDuplicates",
    "session-window" -> "session window",
    "split-join" -> "split join, left outer",
    "split-join-one-store" -> "split join, right outer, one store",
    "transform-with-state" -> "transformWithState, value, list and map"
  ).map { case (name, operator) => name -> Operator.named(operator) }

  private def archive(line: String, name: String, format: String): Path =
    Repository.file(s"tests/golden-checkpoints/$line/$name-$format.zip")

  /** The rows of a run on a checkpoint of a format, whose changes are kept as Spark's default or as a log. */
  private def run[T](operator: Operator, format: String)(body: Run => T): T = {
    val confs = operator.conf ++ Seq(
      SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> format,
      "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled" -> (format == "2").toString
    )
    withConf(confs: _*)(withRun(operator.query, operator.mode, ours)(body))
  }

  /** Moves a part of the keys, and splits the hottest where the operator is a join that may. */
  private def moves(operator: Operator, by: Int): Table = {
    val moved = table(hashes(batches, operator.keys: _*), by)
    val split = operator match {
      case join: SplitJoin =>
        hashes(Seq(Seq(Event("key-0", 0, 0, 0))), operator.keys: _*).map(_ -> join.split(by)).toMap
      case _ => Map.empty[Int, Split]
    }
    Table.of(n, moved.entries.map { case (hash, targets) => hash -> Split.one(targets.head) }.toMap ++ split)
  }

  if (sys.props.contains("skewless.writeGolden"))
    for ((name, operator) <- operators.toSeq; format <- formats)
      test(s"$name, checkpoint format $format, is written under ${BuiltFor.Line}") {
        run(operator, format) { run =>
          val query = run.start()
          batches.take(written).zipWithIndex.foreach { case (rows, i) =>
            Option.when(i == 2 || i == 3)(i - 1).foreach { by =>
              Queries.publish(query, moves(operator, by), limits)
            }
            run.stream.addData(rows)
            query.processAllAvailable()
          }
          query.stop()
          SparkPrivate.drainListeners(spark.sparkContext) // swaps are noted by a listener
          GoldenCheckpoint.pack(Path.of(run.checkpoint), written - 1, archive(BuiltFor.Line, name, format))
        }
      }

  for (line <- older; (name, operator) <- operators.toSeq; format <- formats)
    test(s"$name, checkpoint format $format, written under $line, goes on") {
      val expected = plain(operator, batches).rows
      run(operator, format) { run =>
        GoldenCheckpoint.unpack(archive(line, name, format), Path.of(run.checkpoint))
        batches.take(written).foreach(run.stream.addData(_))
        val query = run.start()
        val swaps = Map(written + 1 -> moves(operator, 5), written + 2 -> Table.empty(n))
        batches.zipWithIndex.drop(written).foreach { case (rows, i) =>
          swaps.get(i).foreach(Queries.publish(query, _, limits))
          run.stream.addData(rows)
          query.processAllAvailable()
          if (i == written)
            assert(Queries.latest(query).contains(moves(operator, 2).withEpoch(2)), "the table in force")
        }
        SparkPrivate.drainListeners(spark.sparkContext)
        assert(Queries.swaps(query).map(_.epoch) == Seq(3, 4) && Queries.swaps(query).forall(_.rows > 0))
        assert(run.outcome.rows.keySet == (written until batches.size).map(_.toLong).toSet)
        run.outcome.rows.foreach { case (batch, rows) => assert(rows == expected(batch), s"batch $batch") }
        assert(run.outcome.rows.values.exists(_.nonEmpty), "the query gave rows at all")
      }
    }
}
