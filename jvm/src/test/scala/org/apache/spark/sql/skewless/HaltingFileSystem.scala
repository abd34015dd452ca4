package org.apache.spark.sql.skewless

import java.io.IOException
import java.net.URI
import java.nio.file.{Files, Path => NioPath}
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.concurrent.TrieMap

import org.apache.hadoop.fs.{FSDataInputStream, FSDataOutputStream, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/**
 * The local file system as `halt:`, in which a query's folder goes dead at a given file operation, as if the
 * power were cut: for tests that crash a driver at a point of the protocol. All that the protocol does, it
 * does to files, so what happens in the process after that leaves no trace; the process itself is halted when
 * all of its queries have died.
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

  /** Without Hadoop's native code this starts a process for each file. */
  override def setPermission(path: Path, permission: FsPermission): Unit = ()

  override def mkdirs(path: Path, permission: FsPermission): Boolean = {
    at("mkdirs", path)
    super.mkdirs(path, permission)
  }

  override def delete(path: Path, recursive: Boolean): Boolean = {
    at("delete", path)
    super.delete(path, recursive)
  }
}

/**
 * Where to die: the `count`th time that the operation is about to happen (or, "renamed", has happened) to a
 * path that matches.
 */
final case class HaltPoint(operation: String, path: String, count: Int = 1)

object HaltingFileSystem {

  /**
   * The power of everything under a folder is cut at a point: from then on nothing there can be read, written
   * or removed.
   */
  private final class Death(point: HaltPoint, mark: NioPath) {
    private val seen = new AtomicInteger
    @volatile private var dead = false

    def at(operation: String, path: String): Unit = {
      if (
        !dead && operation == point.operation && path.matches(".*" + point.path + ".*") && seen
          .incrementAndGet() == point.count
      ) {
        dead = true
        Files.createFile(mark)
      }
      if (dead) throw new IOException(s"the power is off under ${mark.getParent}: $operation $path")
    }
  }

  private val deaths = TrieMap.empty[String, Death]

  /** What a suite does to files of its own process, before the operation: damage them, say. */
  @volatile var hook: (String, Path) => Unit = (_, _) => ()

  /**
   * Cuts the power of all that happens under `folder` at the given point; a file `fired` says that it came to
   * that.
   */
  def die(folder: NioPath, point: HaltPoint): Unit = {
    deaths.put(s"$folder/", new Death(point, folder.resolve("fired"))); ()
  }

  /** Gives the power back: what was written before it went is there, and nothing else. */
  def revive(folder: NioPath): Unit = { deaths.remove(s"$folder/"); () }

  private def at(operation: String, path: Path): Unit = {
    hook(operation, path)
    val name = path.toUri.getPath
    deaths.foreach { case (folder, death) => if (name.startsWith(folder)) death.at(operation, name) }
  }
}
