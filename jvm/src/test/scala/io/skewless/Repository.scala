package io.skewless

import java.nio.file.{Files, Path}

/** Files of the repository, wherever sbt runs the suites from. */
object Repository {
  private val root: Path =
    Iterator
      .iterate(Path.of("").toAbsolutePath)(_.getParent)
      .takeWhile(_ != null)
      .find(p => Files.exists(p.resolve("VERSION")))
      .get

  def file(path: String): Path = root.resolve(path)
}
