package org.apache.spark.sql.skewless

import java.lang.management.ManagementFactory
import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._

import io.skewless.TestSpark
import org.scalatest.funsuite.AnyFunSuite

/**
 * The driver dies at each point of the protocol, in a process of its own, while batch 3 swaps tables; this process then finishes the
 * work on the same checkpoint. Every batch must have the rows that plain Spark gives.
 */
class StateCrashSuite extends AnyFunSuite with TestSpark {

  private val input = new StatefulInput

  private val points = Seq(
    "after the offset log" -> HaltPoint("renamed", "/offsets/3$"),
    "after the table, before the pin" -> HaltPoint("create", "/pins/[.]3[.]"),
    "between the pin's temporary file and its rename" -> HaltPoint("rename", "/pins/3$"),
    "after the pin" -> HaltPoint("renamed", "/pins/3$"),
    "during the map stage" -> HaltPoint("open", "/in/00003.json"),
    "during the export" -> HaltPoint("create", "/_skewless/moves/3-", 2),
    "after some state commits" -> HaltPoint("renamed", "/state/.*/4([.]|_)[^/]*$", 2),
    "after all state commits" -> HaltPoint("create", "/commits/[.]3[.]"),
    "after the commit log" -> HaltPoint("renamed", "/commits/3$"),
    "during the purge" -> HaltPoint("delete", "/_skewless/pins/[0-9]+$")
  )

  /** Few of the slow ones: a join in two stores a side takes a minute to die and come back. */
  private val operators = Seq(
    "count, no codegen",
    "collect_list (object hash aggregate)",
    "windowed count, append",
    "dropDuplicates by time",
    "session window",
    "flatMapGroupsWithState, event-time timeout",
    "transformWithState, value, list and map",
    "transformWithState, timers",
    "stream-stream join, full outer, one store",
    "dropDuplicates, then count, on one exchange"
  ).map(Operator.named)

  /** Each fault with another operator, in turn; in the full matrix each with two, in both formats. */
  private val cases = for {
    ((name, point), i) <- points.zipWithIndex
    format <- if (FullMatrix.on) Seq(1, 2) else Seq(i % 2 + 1)
    shift <- if (FullMatrix.on) Seq(0, 5) else Seq(0)
  } yield (name, point, format.toString, operators((i + shift) % operators.size))

  for ((name, point, format, operator) <- cases)
    test(s"driver dies $name: ${operator.name}, checkpoint format $format") {
      val dir = Files.createTempDirectory("skewless-crash")
      try {
        val run = new FileRun(dir, operator, format)
        run.writeInput(input.batches(if (name.contains("purge")) 8 else 6)) // a purge takes batches that nobody can go back to
        run.run(spark, swap = false)
        val log = crash(dir, operator, format, point)
        assert(Files.exists(dir.resolve("fired")), s"the driver did die there; its log: $log")
        run.run(spark, swap = true)
        val (found, expected) = (run.rows("out"), run.rows("expected"))
        expected.keys.toSeq.sorted.foreach(batch => assert(found.get(batch) == expected.get(batch), s"batch $batch"))
        assert(found.keySet == expected.keySet && expected.values.exists(_.nonEmpty))
        assert(Files.exists(dir.resolve("checkpoint/_skewless/pins/4")), "the last swap was made")
      } finally org.apache.spark.util.Utils.deleteRecursively(dir.toFile)
    }

  /** Runs a driver until it dies. */
  private def crash(dir: Path, operator: Operator, format: String, point: HaltPoint): String = {
    val launcher = Path.of(System.getProperty("java.home"), "bin", "java").toString
    val opens =
      ManagementFactory.getRuntimeMXBean.getInputArguments.asScala.filter(_.startsWith("--add-opens"))
    val command = Seq(launcher) ++ opens ++ Seq(
      "-Xmx1g",
      s"-Dskewless.halt=$point",
      s"-Dskewless.halt.mark=${dir.resolve("fired")}",
      "-cp",
      System.getProperty("java.class.path"),
      "org.apache.spark.sql.skewless.FileRun",
      dir.toString,
      operator.name,
      format
    )
    val log = dir.resolve("log").toFile
    val process = new ProcessBuilder(command: _*).redirectErrorStream(true).redirectOutput(log).start()
    process.waitFor()
    Files.readAllLines(log.toPath).asScala.takeRight(30).mkString("\n")
  }
}
