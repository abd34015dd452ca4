package io.skewless.moves

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, ObjectInputStream, ObjectOutputStream}
import java.nio.file.{Files, Path => JPath}

import scala.collection.mutable
import scala.util.Random

import io.skewless.Refusals.refusal
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.scalatest.funsuite.AnyFunSuite

/** Rows on their way from one partition to others, carried or in a file: what is read is what was written. */
class ChunkSuite extends AnyFunSuite {

  private val conf = new Configuration()
  private val columns =
    Seq(StateColumn(0, "default", "default", isList = false), StateColumn(0, "s", "f", true))

  private type Row = (Int, String, Seq[Byte], Seq[Byte])

  private def rows(count: Int, most: Int): Seq[(StateColumn, Way, Array[Byte], Array[Byte])] = {
    val random = new Random(count)
    Seq.fill(count) {
      val column = columns(random.nextInt(2))
      (
        column,
        Way(random.nextInt(3), keeps = random.nextBoolean()),
        random.nextBytes(random.nextInt(most)),
        random.nextBytes(random.nextInt(most))
      )
    }
  }

  private def withWritten[T](count: Int, most: Int, carriedBytes: Int, budgetBytes: Long = 64L << 20)(
      body: (Seq[Chunk], Seq[Row], JPath) => T
  ): T = {
    val dir = Files.createTempDirectory("skewless-chunks")
    val file = dir.resolve("3-0-7")
    try {
      val writer = new ChunkWriter(new Path(file.toUri), 3, conf, carriedBytes, budgetBytes)
      val in = rows(count, most)
      in.foreach { case (column, way, key, value) => writer.add(column, way, key, value) }
      body(
        writer.close(),
        sorted(in.map { case (c, w, k, v) => (w.target, c.family, k.toSeq, v.toSeq) }),
        file
      )
    } finally org.apache.commons.io.FileUtils.deleteDirectory(dir.toFile)
  }

  private def read(chunks: Seq[Chunk]): Seq[Row] = {
    val found = mutable.ArrayBuffer.empty[Row]
    ChunkReader.foreach(chunks, conf) { (chunk, key, value) =>
      found += ((chunk.target, chunk.family, key.toSeq, value.toSeq))
    }
    sorted(found.toSeq)
  }

  private def sorted(rows: Seq[Row]): Seq[Row] = rows.sortBy(_.toString)

  private def carried(chunk: Chunk): Option[Array[Byte]] =
    Some(chunk.place).collect { case carried: Carried => carried.bytes }
  private def isCarried(chunk: Chunk): Boolean = carried(chunk).isDefined

  test("few bytes are carried, and no file is made") {
    withWritten(200, most = 100, carriedBytes = 64 << 10) { (chunks, expected, file) =>
      assert(chunks.nonEmpty && chunks.forall(isCarried) && !Files.exists(file))
      assert(read(chunks) == expected && chunks.map(_.rows).sum == 200)
      assert(chunks.map(_.bytes).sum <= (64 << 10))
    }
  }

  test("more bytes than may be carried are all in one file") {
    withWritten(200, most = 100, carriedBytes = 1 << 10) { (chunks, expected, file) =>
      assert(chunks.nonEmpty && chunks.forall(!isCarried(_)))
      assert(Files.size(file) == chunks.map(_.bytes.toLong).sum && read(chunks) == expected)
    }
  }

  test("a writer that had to make room on the way carries nothing, whatever is left") {
    withWritten(400, most = 100, carriedBytes = 1 << 20, budgetBytes = 4 << 10) { (chunks, expected, _) =>
      assert(chunks.forall(!isCarried(_)) && read(chunks) == expected)
    }
  }

  test("with nothing to carry there is always a file, and none if nothing moves") {
    withWritten(1, most = 10, carriedBytes = 0)((chunks, _, file) =>
      assert(chunks.size == 1 && !isCarried(chunks.head) && Files.exists(file))
    )
    withWritten(0, most = 10, carriedBytes = 0)((chunks, _, file) =>
      assert(chunks.isEmpty && !Files.exists(file))
    )
  }

  test("chunks of both kinds are read together, and carried ones survive a journey") {
    withWritten(50, most = 50, carriedBytes = 1 << 20) { (few, first, _) =>
      withWritten(60, most = 50, carriedBytes = 0) { (inFile, second, _) =>
        val bytes = new ByteArrayOutputStream
        val out = new ObjectOutputStream(bytes)
        out.writeObject((few ++ inFile).toVector)
        out.close()
        val arrived = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray)).readObject()
        assert(read(arrived.asInstanceOf[Vector[Chunk]]) == sorted(first ++ second))
      }
    }
  }

  test("carried bytes that are not those that were written are refused, whichever bit it is") {
    withWritten(5, most = 20, carriedBytes = 1 << 10) { (chunks, _, _) =>
      for (chunk <- chunks; bytes <- carried(chunk); bit <- 0 until 8 * bytes.length) {
        val other = bytes.clone()
        other(bit / 8) = (other(bit / 8) ^ (1 << bit % 8)).toByte
        val error = refusal("CheckpointError")(read(Seq(chunk.copy(place = new Carried(other)))))
        assert(Seq("not those that were written", "partition 3").forall(error.getMessage.contains))
      }
    }
  }

  test("carried bytes that are cut short or have too many rows are refused") {
    withWritten(5, most = 20, carriedBytes = 1 << 10) { (chunks, _, _) =>
      val chunk = chunks.maxBy(_.rows)
      val bytes = carried(chunk).get
      refusal("CheckpointError")(read(Seq(chunk.copy(place = new Carried(bytes.dropRight(1))))))
      refusal("CheckpointError")(read(Seq(chunk.copy(rows = chunk.rows - 1))))
    }
  }
}
