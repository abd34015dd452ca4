package org.apache.spark.sql.skewless.state

import java.nio.file.{Files, Paths, StandardOpenOption}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._

import io.skewless.{SkewlessException, TestSpark}
import org.apache.hadoop.fs.{Path => HadoopPath}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.{FileRun, FullMatrix, HaltingFileSystem, Operator, Queries}
import org.apache.spark.sql.streaming.StreamingQueryException
import org.scalatest.funsuite.AnyFunSuite

/**
 * Tasks that fail, are fetched again, run twice; files that are damaged on their way: in the batch that swaps
 * tables.
 */
class StateFaultSuite extends AnyFunSuite with StateFaults {

  private val swapBatch = 3L
  private val batches = input(6)

  private val cases = for {
    (operator, i) <- Operator.all.zipWithIndex
    if FullMatrix.on || i % 4 == 0
    format <- if (FullMatrix.on) Seq(1, 2) else Seq(i / 4 % 2 + 1)
  } yield (operator, format.toString)

  private def withFault(operator: Operator, format: String, inFiles: Boolean, fault: Fault): Unit = {
    val swaps = Map(swapBatch -> table(hashes(batches, operator.keys: _*), 1))
    def run(): Unit = withFault(operator, format, batches, swaps, fault)
    if (inFiles) TestSpark.withFiles()(run()) else run()
  }

  for {
    (operator, format) <- cases
    inFiles <- if (FullMatrix.on) Seq(false, true) else Seq(format == "2")
    way = if (inFiles) "in files" else "carried"
  } {
    test(
      s"every task of the swap batch fails once after its state commit: ${operator.name}, checkpoint " +
        s"format $format, $way"
    ) {
      withFault(operator, format, inFiles, new FailsAfterCommit(swapBatch))
    }

    test(
      s"a map output is lost after some tasks have committed: ${operator.name}, checkpoint format $format, " +
        way
    ) {
      withFault(operator, format, inFiles, new LosesMapOutput(swapBatch))
    }
  }

  for ((operator, format) <- cases.take(if (FullMatrix.on) cases.size else 2))
    test(s"two actions in foreachBatch: ${operator.name}, checkpoint format $format") {
      withConf(operator.conf :+ SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> format: _*) {
        val expected = plain(operator, batches)
        withRun(operator.query, operator.mode, ours) { run =>
          val counts = new ConcurrentHashMap[Long, Long]()
          val query = run.start { (rows, id) => counts.put(id, rows.count()); run.collect(rows, id) }
          batches.zipWithIndex.foreach { case (rows, i) =>
            if (i == swapBatch)
              Queries.publish(query, table(hashes(batches, operator.keys: _*), 1), limits)
            run.stream.addData(rows)
            query.processAllAvailable()
          }
          same(run.outcome, expected)
          assert(counts.asScala.forall { case (batch, rows) => rows == expected.rows(batch).size })
        }
      }
    }

  // -- files on their way
  // ---------------------------------------------------------------------------------------------------

  private val damages = Seq[(String, java.nio.file.Path => Unit)](
    "is missing" -> (Files.delete(_)),
    "not those that were written" -> { file =>
      val bytes = Files.readAllBytes(file)
      bytes(bytes.length / 2) = (bytes(bytes.length / 2) ^ 1).toByte
      Files.write(file, bytes)
      ()
    },
    "cannot be read" -> { file =>
      Files.write(file, Files.readAllBytes(file).dropRight(9), StandardOpenOption.TRUNCATE_EXISTING)
      ()
    }
  )

  for ((says, damage) <- damages)
    test(
      s"an export file that $says stops the query by name; nothing is committed, and the next run makes it " +
        "anew"
    ) {
      val operator = Operator.named("count")
      val dir = Files.createTempDirectory("skewless-damage")
      try {
        val run = new FileRun(dir, operator, "1")
        run.writeInput(batches)
        val damaged = new AtomicInteger
        HaltingFileSystem.hook = (operation, path: HadoopPath) =>
          if (
            operation == "open" && path.toUri.getPath.contains("/moves/3-") && damaged.getAndIncrement() == 0
          )
            damage(Paths.get(path.toUri.getPath))
        val error = intercept[StreamingQueryException](TestSpark.withFiles()(run.run(spark)))
        HaltingFileSystem.hook = (_, _) => ()
        val refusals =
          Iterator.iterate[Throwable](error)(_.getCause).takeWhile(_ != null).collect {
            case e: SkewlessException => e
          }
        assert(
          refusals.exists(e =>
            e.code == "CheckpointError" && e.getMessage.contains(says) && e.getMessage.contains("/moves/3-")
          )
        )
        assert(damaged.get() > 0 && !Files.exists(dir.resolve("checkpoint/commits/3")))
        run.run(spark)
        assert(run.rows == plain(operator, batches).rows)
      } finally {
        HaltingFileSystem.hook = (_, _) => ()
        org.apache.spark.util.Utils.deleteRecursively(dir.toFile)
      }
    }
}
