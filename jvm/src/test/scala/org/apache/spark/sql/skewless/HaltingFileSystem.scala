package org.apache.spark.sql.skewless

import java.net.URI
import java.nio.file.{Files, Paths}
import java.util.concurrent.atomic.AtomicInteger

import org.apache.hadoop.fs.{FSDataInputStream, FSDataOutputStream, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/**
 * The local file system as `halt:`, in which a JVM dies at a given file operation, as if its power were cut: for tests that crash a
 * driver or an executor at a point of the protocol. All that the protocol does, it does to files.
 */
class HaltingFileSystem extends RawLocalFileSystem {
  import HaltingFileSystem.at

  override def getUri: URI = URI.create("halt:///")
  override def getScheme: String = "halt"

  override def open(path: Path, buffer: Int): FSDataInputStream = {
    at("open", path)
    super.open(path, buffer)
  }

  override def create(
      path: Path,
      permission: FsPermission,
      overwrite: Boolean,
      buffer: Int,
      replication: Short,
      block: Long,
      progress: Progressable
  ): FSDataOutputStream = {
    at("create", path)
    super.create(path, permission, overwrite, buffer, replication, block, progress)
  }

  override def create(
      path: Path,
      overwrite: Boolean,
      buffer: Int,
      replication: Short,
      block: Long,
      progress: Progressable
  ): FSDataOutputStream = {
    at("create", path)
    super.create(path, overwrite, buffer, replication, block, progress)
  }

  override def rename(source: Path, target: Path): Boolean = {
    at("rename", target)
    val done = super.rename(source, target)
    at("renamed", target)
    done
  }

  override def delete(path: Path, recursive: Boolean): Boolean = {
    at("delete", path)
    super.delete(path, recursive)
  }
}

/** Where to die: the `count`th time that the operation is about to happen (or, "renamed", has happened) to a path that matches. */
final case class HaltPoint(operation: String, path: String, count: Int = 1) {
  override def toString: String = s"$operation $count $path"
}

object HaltingFileSystem {
  private val seen = new AtomicInteger
  private val point = Option(System.getProperty("skewless.halt")).filter(_.nonEmpty).map { text =>
    val parts = text.split(" ", 3)
    HaltPoint(parts(0), parts(2), parts(1).toInt)
  }

  /** Made by the process that dies: it dies once, and the test can see that it did. */
  private val mark = Option(System.getProperty("skewless.halt.mark")).map(Paths.get(_))

  /** What a suite does to files of its own process, before the operation: damage them, say. */
  @volatile var hook: (String, Path) => Unit = (_, _) => ()

  private def at(operation: String, path: Path): Unit = {
    hook(operation, path)
    for (p <- point; file <- mark)
      if (p.operation == operation && path.toUri.getPath.matches(".*" + p.path + ".*") && seen.incrementAndGet() == p.count)
        if (!Files.exists(file)) {
          Files.createFile(file)
          Runtime.getRuntime.halt(42)
        }
  }
}
