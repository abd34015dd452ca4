package org.apache.spark.sql.skewless.checkpoint

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.util.zip.{ZipEntry, ZipInputStream, ZipOutputStream}

import scala.jdk.CollectionConverters._
import scala.util.Using

/**
 * A checkpoint in one file that can be unpacked anywhere. Files that name the checkpoint's own folder, as
 * operator metadata does, name a placeholder in the archive; checksum files are left out, and Hadoop reads
 * without.
 */
object GoldenCheckpoint {
  private val Placeholder = "file:/the-checkpoint"
  private val StartOfTime = 0L

  /** @param oldest the oldest version of the state that is worth its bytes, where each version is a whole one */
  def pack(checkpoint: Path, oldest: Long, archive: Path): Unit = {
    Files.createDirectories(archive.getParent)
    Using.resource(new ZipOutputStream(Files.newOutputStream(archive))) { zip =>
      for (file <- files(checkpoint); name = checkpoint.relativize(file).toString if isNeeded(name, oldest)) {
        val entry = new ZipEntry(name)
        entry.setTime(StartOfTime)
        zip.putNextEntry(entry)
        zip.write(replaced(Files.readAllBytes(file), s"file:$checkpoint", Placeholder))
        zip.closeEntry()
      }
    }
  }

  def unpack(archive: Path, checkpoint: Path): Unit =
    Using.resource(new ZipInputStream(Files.newInputStream(archive))) { zip =>
      Iterator.continually(zip.getNextEntry).takeWhile(_ != null).foreach { entry =>
        val file = checkpoint.resolve(entry.getName)
        Files.createDirectories(file.getParent)
        Files.write(file, replaced(zip.readAllBytes(), Placeholder, s"file:$checkpoint"))
      }
    }

  private def files(folder: Path): Seq[Path] = Using.resource(Files.walk(folder)) {
    _.iterator.asScala
      .filter(Files.isRegularFile(_))
      .filterNot(_.getFileName.toString.startsWith("."))
      .toSeq
      .sorted
  }

  private val Scratch = raw"_skewless/moves/.*".r
  private val Snapshot = raw"state/.*/([0-9]+)[.]zip".r

  private def isNeeded(name: String, oldest: Long): Boolean = name match {
    case Scratch() => false
    case Snapshot(version) => version.toLong >= oldest
    case _ => true
  }

  /** A file that is no text has no such name in it, and stays as it is. */
  private def replaced(content: Array[Byte], name: String, by: String): Array[Byte] = {
    val text = new String(content, UTF_8)
    if (!text.contains(name)) content
    else {
      require(text.getBytes(UTF_8).sameElements(content), s"$name stands in a file that is no text")
      text.replace(name, by).getBytes(UTF_8)
    }
  }
}
