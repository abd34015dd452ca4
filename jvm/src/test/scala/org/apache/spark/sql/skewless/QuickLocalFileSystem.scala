package org.apache.spark.sql.skewless

import java.net.URI

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  ChecksumFs,
  DelegateToFileSystem,
  FsConstants,
  LocalFileSystem,
  Path,
  RawLocalFileSystem
}
import org.apache.hadoop.fs.permission.FsPermission

/**
 * Hadoop's local file system for the suites, but for permissions: without Hadoop's native code each file that
 * is made costs a process that sets them, and a micro-batch makes dozens of files.
 */
class QuickLocalFileSystem extends LocalFileSystem(new QuickRawFileSystem)

private class QuickRawFileSystem extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit = ()
}

/** The same for `FileContext`, through which Spark writes checkpoints. */
class QuickLocalFs(@annotation.unused uri: URI, conf: Configuration) extends ChecksumFs(new QuickRawFs(conf))

private class QuickRawFs(conf: Configuration)
    extends DelegateToFileSystem(FsConstants.LOCAL_FS_URI, new QuickRawFileSystem, conf, "file", false) {
  override def getUriDefaultPort: Int = -1
}

object QuickLocalFileSystem {

  /** The settings of a session that use it. */
  val conf: Map[String, String] = Map(
    "spark.hadoop.fs.file.impl" -> classOf[QuickLocalFileSystem].getName,
    "spark.hadoop.fs.AbstractFileSystem.file.impl" -> classOf[QuickLocalFs].getName
  )
}
