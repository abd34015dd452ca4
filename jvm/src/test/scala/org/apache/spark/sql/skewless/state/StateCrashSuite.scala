package org.apache.spark.sql.skewless.state

import java.io.File
import java.lang.management.ManagementFactory
import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.skewless.{Event, FileRun, FullMatrix, HaltPoint, Operator, StatefulRun}
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite

/**
 * The driver dies at each point of the protocol, in a process of its own, while batch 3 swaps tables; this
 * process then finishes the work on the same checkpoint. Every batch must have the rows that plain Spark
 * gives.
 *
 * Several queries share one dying process, one after the other: each is dead for good from its own point on
 * (`HaltingFileSystem`), the process is halted after the last. The next group dies while this process brings
 * the last one back.
 */
class StateCrashSuite extends AnyFunSuite with StatefulRun with BeforeAndAfterAll {

  private val points = Seq(
    "after the offset log" -> HaltPoint("renamed", "/offsets/3$"),
    "before the table" -> HaltPoint("create", "/tables/2$"),
    "while the pin's temporary file is made" -> HaltPoint("create", "/pins/[.]3[.]"),
    "after the table, before the pin" -> HaltPoint("rename", "/pins/3$"),
    "after the pin" -> HaltPoint("renamed", "/pins/3$"),
    "after the pin, before its witness" -> HaltPoint("create", "/state/skewless-2$"),
    "during the map stage" -> HaltPoint("open", "/in/00003.json"),
    "during the export" -> HaltPoint("create", "/_skewless/moves/3-", 2),
    "after some state commits" -> HaltPoint("renamed", "/state/.*/4([.]|_)[^/]*$", 2),
    "after all state commits" -> HaltPoint("create", "/commits/[.]3[.]"),
    "after the commit log" -> HaltPoint("renamed", "/commits/3$"),
    "during the purge" -> HaltPoint("delete", "/_skewless/pins/[0-9]+$")
  )

  private case class Case(point: String, operator: Operator, format: String, turn: Int) {
    lazy val dir: Path = Files.createTempDirectory("skewless-crash")
    val inFiles: Boolean = point == "during the export" || turn % 2 == 1
    lazy val run = new FileRun(dir, operator, format, inFiles)
    val batches: Seq[Seq[Event]] = input(
      if (point.contains("purge")) 8 else 6
    ) // a purge takes batches that nobody can go back to
    override def toString: String = s"driver dies $point: ${operator.name}, checkpoint format $format, " +
      (if (inFiles) "in files" else "carried")
  }

  /**
   * Each point with another operator, in turn; in the full matrix every point with every operator, in both
   * formats. There, each group has every operator at another point, so that a run that is broken off has seen
   * something of all.
   */
  private val groups: Seq[Seq[Case]] =
    if (FullMatrix.on)
      Seq.tabulate(2 * points.size) { round =>
        (Operator.all ++ Operator.splitting).zipWithIndex.map { case (operator, i) =>
          val format = (i + round / points.size) % 2 + 1
          Case(points((i + round) % points.size)._1, operator, format.toString, round)
        }
      }
    else
      Seq(points.zipWithIndex.map { case ((point, _), i) =>
        Case(point, StateCrashSuite.quick(i), (i % 2 + 1).toString, i / 2)
      } ++ Seq("during the export", "after some state commits", "after all state commits").zipWithIndex.map {
        case (point, i) => Case(point, Operator.splitting(i), (i % 2 + 1).toString, i)
      })

  private val drivers = groups.map(new DyingDriver(_))

  for ((group, i) <- groups.zipWithIndex; one <- group)
    test(one.toString) {
      drivers(i).await()
      drivers.lift(i + 1).foreach(_.start())
      try {
        assert(
          Files.exists(one.dir.resolve("fired")),
          s"the driver did die there; its log: ${drivers(i).log(one)}"
        )
        val isPinned = Files.exists(one.dir.resolve("checkpoint/_skewless/pins/3"))
        assert(isPinned || !StateCrashSuite.InSwap(one.point), "it died in the swap's batch, not before it")
        one.run.run(spark)
        val (found, expected) = (one.run.rows, plain(one.operator, one.batches).rows)
        expected.keys.toSeq.sorted
          .foreach(batch => assert(found.get(batch) == expected.get(batch), s"batch $batch"))
        assert(found.keySet == expected.keySet && expected.values.exists(_.nonEmpty))
        assert(Files.exists(one.dir.resolve("checkpoint/_skewless/pins/4")), "the last swap was made")
      } finally org.apache.spark.util.Utils.deleteRecursively(one.dir.toFile)
    }

  override protected def afterAll(): Unit = {
    drivers.foreach(_.close())
    super.afterAll()
  }

  /** A process in which the queries of a group die. */
  private final class DyingDriver(cases: Seq[Case]) extends AutoCloseable {
    private var process = Option.empty[Process]
    private lazy val home = Files.createTempDirectory("skewless-driver")

    def start(): Unit = if (process.isEmpty) {
      cases.foreach(one => one.run.writeInput(one.batches))
      val lines = cases.map { one =>
        val at = points.toMap.apply(one.point)
        Seq(
          s"${one.dir}",
          one.operator.name,
          one.format,
          at.operation,
          s"${at.count}",
          at.path,
          s"${one.inFiles}"
        )
          .mkString("\t")
      }
      val list = Files.write(home.resolve("cases"), lines.asJava)
      val opens =
        ManagementFactory.getRuntimeMXBean.getInputArguments.asScala.filter(_.startsWith("--add-opens"))
      val options = Seq(s"-Djava.io.tmpdir=${home.getParent}", "-Xmx1g", "-XX:TieredStopAtLevel=1")
      val command =
        Seq(Path.of(System.getProperty("java.home"), "bin", "java").toString) ++ opens ++ options ++
          Seq("-cp", System.getProperty("java.class.path"), FileRun.Main, list.toString)
      process = Some(new ProcessBuilder(command: _*).redirectErrorStream(true).redirectOutput(output).start())
    }

    def await(): Unit = {
      start()
      process.foreach(_.waitFor())
    }

    def log(one: Case): String = {
      val own = one.dir.resolve("log")
      val end = Files.readAllLines(output.toPath).asScala.takeRight(30).mkString("\n")
      (if (Files.exists(own)) Files.readString(own) else "none") + "\n" + end
    }

    private def output: File = home.resolve("log").toFile

    override def close(): Unit = if (process.isDefined) {
      process.foreach(_.destroyForcibly().waitFor())
      org.apache.spark.util.Utils.deleteRecursively(home.toFile)
    }
  }
}

private object StateCrashSuite {
  private val InSwap =
    Set("during the map stage", "during the export", "after some state commits", "after all state commits")

  /** One for each point; few of the slow ones. */
  private val quick: Seq[Operator] = Seq(
    "count, no codegen",
    "collect_list (object hash aggregate)",
    "dropDuplicates",
    "windowed count, append",
    "dropDuplicates by time",
    "session window",
    "flatMapGroupsWithState, event-time timeout",
    "transformWithState, value, list and map",
    "transformWithState, timers",
    "count",
    "stream-stream join, full outer, one store",
    "dropDuplicates, then count, on one exchange"
  ).map(Operator.named)
}
