package org.apache.spark.sql.skewless.query

import java.nio.file.{Files, Path => JPath}
import java.util.UUID

import scala.jdk.CollectionConverters._
import scala.util.Using

import io.skewless.TestSpark
import io.skewless.table.{Table, TableCodec}
import org.apache.hadoop.fs.Path
import org.scalatest.funsuite.AnyFunSuite

class PinLogSuite extends AnyFunSuite with TestSpark {

  private val queryId = UUID.fromString("11111111-2222-3333-4444-555555555555")
  private val tables = (0 to 4).map(i => Table(8, Map(i -> Seq(3), 100 + i -> Seq(1, 2))))

  private def open(dir: JPath, id: UUID = queryId): PinLog = new PinLog(new Path(dir.toUri), id, spark)

  private def withCheckpoint(body: JPath => Unit): Unit = {
    val dir = Files.createTempDirectory("skewless-pins")
    try body(dir)
    finally org.apache.spark.util.Utils.deleteRecursively(dir.toFile)
  }

  /** A checkpoint with two tables: epoch 1 from batch 3 on, epoch 2 from batch 7 on. */
  private def withTwoPins(body: JPath => Unit): Unit = withCheckpoint { dir =>
    val log = open(dir)
    assert(log.add(tables(0), notBefore = 3) == (1, 3) && log.add(tables(1), notBefore = 7) == (2, 7))
    body(dir)
  }

  private def tableFile(dir: JPath, epoch: Long): JPath = dir.resolve(s"_skewless/tables/$epoch")
  private def pinFile(dir: JPath, batch: Long): JPath = dir.resolve(s"_skewless/pins/$batch")

  private def files(dir: JPath): Map[String, Seq[Byte]] = Using.resource(Files.walk(dir)) {
    _.iterator.asScala
      .filter(Files.isRegularFile(_))
      .map(f => dir.relativize(f).toString -> Files.readAllBytes(f).toSeq)
      .toMap
  }

  /** Reads everything that a planner or a publisher may read. */
  private def readAll(dir: JPath): Unit = {
    val log = open(dir)
    (0L to 9L).foreach(log.tableAt)
    log.latest
  }

  private def refused(dir: JPath, file: JPath, says: String): Unit = {
    val before = files(dir)
    val message = refusal("CheckpointError")(readAll(dir)).getMessage
    assert(message.contains(file.getFileName.toString) && message.contains(says), message)
    assert(files(dir) == before, "a refused checkpoint is left as it was")
  }

  test(
    "a run deletes its own scratch of finished batches; what other runs left goes only when it says that " +
      "they are over"
  ) {
    withCheckpoint { dir =>
      val (mine, other) = (UUID.randomUUID(), UUID.randomUUID())
      val scratch =
        Seq(s"3-$mine", s"12-$mine", s"3-$other").map(name => dir.resolve(s"_skewless/moves/$name"))
      scratch.foreach(folder => Files.write(Files.createDirectories(folder).resolve("0"), Array[Byte](1)))
      open(dir).clean(mine, before = 4)
      assert(scratch.map(Files.exists(_)) == Seq(false, true, true))
      open(dir).cleanOthers(mine)
      assert(scratch.map(Files.exists(_)) == Seq(false, true, false))
    }
  }

  test("a new checkpoint has no table and gets no file by being read") {
    withCheckpoint { dir =>
      val log = open(dir)
      assert(log.latest.isEmpty && log.tableAt(0).isEmpty && files(dir).isEmpty)
    }
  }

  test("a pin holds from its batch until the next pin, in this run and after a restart") {
    withTwoPins { dir =>
      for (log <- Seq(open(dir), open(dir))) {
        assert((0L to 2L).forall(log.tableAt(_).isEmpty))
        assert((3L to 6L).forall(log.tableAt(_).contains(tables(0).withEpoch(1))))
        assert((7L to 99L).forall(log.tableAt(_).contains(tables(1).withEpoch(2))))
        assert(log.latest.contains(tables(1).withEpoch(2)))
      }
    }
  }

  test("files are never overwritten: a later table leaves the earlier files as they were") {
    withTwoPins { dir =>
      val before = files(dir)
      assert(open(dir).add(tables(2), notBefore = 8) == (3, 8))
      val after = files(dir)
      assert(before.forall { case (name, bytes) => after(name) == bytes })
      assert(
        after.keySet.filterNot(before.contains).filterNot(_.endsWith(".crc")) == Set(
          "_skewless/tables/3",
          "_skewless/pins/8"
        )
      )
    }
  }

  test(
    "two tables published before one batch: the second takes the batch after, and the first keeps its own"
  ) {
    withCheckpoint { dir =>
      val log = open(dir)
      assert(
        log.add(tables(0), 5) == (1, 5) && log.add(tables(1), 5) == (2, 6) && log.add(tables(2), 2) == (3, 7)
      )
      assert(log.tableAt(5).get.sameRoutes(tables(0)) && log.tableAt(6).get.sameRoutes(tables(1)))
    }
  }

  test("the epoch is given out by the log, whatever the table says") {
    withCheckpoint { dir =>
      assert(open(dir).add(tables(0).withEpoch(77), 0) == (1, 0))
      assert(TableCodec.decode(Files.readAllBytes(tableFile(dir, 1))).epoch == 1)
    }
  }

  test("a table file cut short at any length is refused") {
    val length = TableCodec.encode(tables(0)).length
    (0 until length by 7).foreach { kept =>
      withTwoPins { dir =>
        val file = tableFile(dir, 1)
        Files.write(file, Files.readAllBytes(file).take(kept))
        refused(dir, file, "cannot be trusted")
      }
    }
  }

  test("a table file with any byte flipped is refused") {
    withTwoPins { dir =>
      val (file, good) = (tableFile(dir, 2), Files.readAllBytes(tableFile(dir, 2)))
      good.indices.foreach { at =>
        Files.write(file, good.updated(at, (good(at) ^ 0x10).toByte))
        refused(dir, file, "cannot be trusted")
      }
      Files.write(file, good)
      readAll(dir)
    }
  }

  test("a pin with any bit flipped is refused") {
    withTwoPins { dir =>
      val (file, good) = (pinFile(dir, 7), Files.readAllBytes(pinFile(dir, 7)))
      for (at <- good.indices; bit <- 0 until 8) {
        Files.write(file, good.updated(at, (good(at) ^ (1 << bit)).toByte))
        refusal("CheckpointError")(readAll(dir))
      }
      Files.write(file, good)
      readAll(dir)
    }
  }

  test("a pin cut short at any length is refused") {
    withTwoPins { dir =>
      val (file, good) = (pinFile(dir, 3), Files.readAllBytes(pinFile(dir, 3)))
      good.indices.foreach { kept =>
        Files.write(file, good.take(kept))
        refused(dir, file, "cannot be trusted")
      }
    }
  }

  test("a missing table is refused, a table that nothing names is not") {
    withTwoPins { dir =>
      Files.delete(tableFile(dir, 1))
      refused(dir, tableFile(dir, 1), "it is missing")
    }
    withTwoPins { dir =>
      Files.write(
        tableFile(dir, 3),
        TableCodec.encode(tables(2).withEpoch(3))
      ) // the crash between table and pin
      val log = open(dir)
      assert(log.latest.contains(tables(1).withEpoch(2)))
      assert(log.add(tables(3), 9) == (4, 9), "its epoch is not given out again")
    }
  }

  test("a part of a table that nothing names, as a crash leaves it, is in nobody's way") {
    val bytes = TableCodec.encode(tables(2).withEpoch(3))
    Seq(0, 1, bytes.length / 2, bytes.length - 1).foreach { kept =>
      withTwoPins { dir =>
        Files.write(tableFile(dir, 3), bytes.take(kept))
        val log = open(dir)
        assert(log.latest.contains(tables(1).withEpoch(2)))
        assert(log.add(tables(3), 9) == (4, 9), "its epoch is not given out again")
        assert(open(dir).latest.contains(tables(3).withEpoch(4)))
        log.purge(oldest = 10)
        assert(!Files.exists(tableFile(dir, 3)) && Files.exists(tableFile(dir, 4)))
      }
    }
  }

  test("the state says which table has placed it once that is settled, and not before the pin") {
    withCheckpoint { dir =>
      def log() = new PinLog(new Path(dir.toUri), queryId, spark, stateful = true)
      val first = log()
      Files.createDirectories(dir.resolve("_skewless/pins/3")) // in the place of the pin
      intercept[Exception](first.add(tables(0), 3))
      first.settle()
      assert(!Files.exists(dir.resolve("state/skewless-1")))
      Files.delete(dir.resolve("_skewless/pins/3"))
      assert(first.add(tables(0), 3) == (2, 3) && first.add(tables(1), 5) == (3, 5))
      first.settle()
      assert(!Files.exists(dir.resolve("state/skewless-2")) && Files.exists(dir.resolve("state/skewless-3")))
      Files.delete(pinFile(dir, 5))
      assert(refusal("CheckpointError")(log()).getMessage.contains("the pin that names it is missing"))
    }
  }

  test("a table holds though no word of it can be left beside the state") {
    withCheckpoint { dir =>
      Files.writeString(dir.resolve("state"), "in the place of the folder")
      val log = new PinLog(new Path(dir.toUri), queryId, spark, stateful = true)
      assert(log.add(tables(0), 3) == (1, 3))
      log.settle()
      assert(log.tableAt(3).contains(tables(0).withEpoch(1)) && open(dir).latest == log.latest)
    }
  }

  test("another whole table in the place of the pinned one is refused") {
    withTwoPins { dir =>
      val file = tableFile(dir, 1)
      Seq(tables(4).withEpoch(1), tables(0).withEpoch(2), Table(9, Map.empty, 1)).foreach { other =>
        Files.write(file, TableCodec.encode(other))
        refused(dir, file, "not the table that the pin of batch 3 names")
      }
    }
  }

  test("pins of another query are refused") {
    withTwoPins(dir =>
      assert(refusal("CheckpointError")(open(dir, UUID.randomUUID())).getMessage.contains("belongs to query"))
    )
  }

  test("a pin under another batch's name is refused") {
    withTwoPins { dir =>
      Files.copy(pinFile(dir, 3), pinFile(dir, 5))
      refused(dir, pinFile(dir, 5), "it says that it pins batch 3")
    }
  }

  test("a pin or a table of a later format is refused with the way out") {
    withTwoPins { dir =>
      val file = pinFile(dir, 3)
      Files.writeString(file, Files.readString(file).replace("\"format\":1", "\"format\":2"))
      refused(dir, file, "Use the Skewless that wrote it")
    }
    withTwoPins { dir =>
      val file = tableFile(dir, 1)
      Files.write(file, Files.readAllBytes(file).updated(4, 3.toByte))
      refused(dir, file, "Use the Skewless that wrote it")
    }
  }

  test("an oversized pin is refused before it is parsed") {
    withTwoPins { dir =>
      val file = pinFile(dir, 3)
      Files.writeString(file, Files.readString(file) + " " * PinLog.MaxPinBytes)
      refused(dir, file, "it has more than")
    }
  }

  test("stale temporary files and foreign names are left alone") {
    withTwoPins { dir =>
      Seq(".9.0d3f.tmp", "9.tmp", "abc", ".9.tmp.crc", "12345678901234567890").foreach { name =>
        Files.writeString(dir.resolve(s"_skewless/pins/$name"), "half")
        Files.writeString(dir.resolve(s"_skewless/tables/$name"), "half")
      }
      assert(open(dir).latest.contains(tables(1).withEpoch(2)) && open(dir).add(tables(2), 8) == (3, 8))
    }
  }

  test("of two drivers on one checkpoint the second is refused, and the first one's pin stands") {
    withCheckpoint { dir =>
      val (first, second) = (open(dir), open(dir))
      assert(first.add(tables(0), 4) == (1, 4))
      val before = files(dir)
      (1 to 3).foreach { _ =>
        assert(refusal("CheckpointError")(second.add(tables(1), 4)).getMessage.contains("another driver"))
      }
      assert(before.forall { case (name, bytes) => files(dir)(name) == bytes })
      assert(second.latest.isEmpty, "what was refused is not in force")
      assert(
        open(dir).tableAt(4).contains(tables(0).withEpoch(1)) && open(dir).latest.contains(
          tables(0).withEpoch(1)
        )
      )
    }
  }

  test("of two drivers on one checkpoint, neither plans a batch that the other has pinned") {
    withCheckpoint { dir =>
      val (first, second) = (open(dir), open(dir))
      assert(first.add(tables(0), 4) == (1, 4))
      Seq(3L, 4L, 5L).foreach(first.checkAlone)
      assert(
        refusal("CheckpointError")(second.checkAlone(4)).getMessage.contains("written by another driver")
      )
      Seq(3L, 5L).foreach(second.checkAlone)
      open(dir).checkAlone(4) // whoever starts later knows the pin
    }
  }

  test("of two drivers that pin different batches at once, neither overwrites the other") {
    withCheckpoint { dir =>
      val (first, second) = (open(dir), open(dir))
      first.add(tables(0), 4)
      refusal("CheckpointError")(second.add(tables(1), 6)) // the table of epoch 1 exists
      second.add(tables(1), 6) // its next try takes epoch 2
      refusal("CheckpointError")(first.add(tables(2), 5)) // and now the first one is told
      val log = open(dir)
      assert(log.tableAt(4).get.sameRoutes(tables(0)) && log.tableAt(6).get.sameRoutes(tables(1)))
    }
  }
}
