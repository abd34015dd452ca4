package org.apache.spark.sql.skewless.state

import java.nio.file.{Files, Path}
import java.util.concurrent.{CountDownLatch, TimeUnit}

import scala.concurrent.ExecutionContext.Implicits.global
import scala.concurrent.{Await, Future}
import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.Using

import io.skewless.TestSpark
import org.apache.hadoop.fs.{Path => HadoopPath}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.skewless.{FileRun, FullMatrix, HaltingFileSystem, Operator, StatefulRun}
import org.scalatest.funsuite.AnyFunSuite

/**
 * A task of a run that is over commits its state after another run has made the same version, in the batch
 * that swaps tables. In checkpoint format 2 its file has a name of its own. In format 1 it replaces the good
 * one, and must hold the same: the batch is pinned to one table whoever plans it.
 */
class StateZombieSuite extends AnyFunSuite with StatefulRun {

  private val batches = input(6)
  private val changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

  for {
    (format, changelogs) <- Seq("1" -> false, "1" -> true, "2" -> false, "2" -> true)
    operator <- if (FullMatrix.on && !changelogs) Operator.all else Seq(Operator.named("count"))
  } test(
    s"a task of an earlier run commits late${if (changelogs) ", changelog" else ""}: ${operator.name}, " +
      s"checkpoint format $format"
  ) {
    def body(): Unit = withConf(changelog -> s"$changelogs") {
      val dir = Files.createTempDirectory("skewless-zombie")
      val zombie = new Zombie(dir.resolve("checkpoint/state/0/1"))
      HaltingFileSystem.hook = zombie.hold
      try {
        val run = new FileRun(dir, operator, format)
        run.writeInput(batches.take(4))
        val first = Future(run.run(spark))
        assert(zombie.isHeld, "a task of the first run stands before its state commit")
        spark.streams.active.foreach(_.stop())
        Await.ready(first, 1.minute)
        run.run(spark) // batch 3 again, which pins batch 4
        val good = zombie.files
        assert(good.nonEmpty && Files.exists(dir.resolve("checkpoint/commits/3")))
        zombie.release()
        assert(zombie.files != good, "the late commit did happen")
        assert(zombie.files.size == good.size + format.toInt - 1, "in format 2 it has a file of its own")
        StateStore.unloadAll() // whoever goes on must read the files
        run.writeInput(batches)
        run.run(spark)
        val (found, expected) = (run.rows, plain(operator, batches).rows)
        expected.keys.toSeq.sorted.foreach(batch =>
          assert(found.get(batch) == expected.get(batch), s"batch $batch")
        )
        assert(Files.exists(dir.resolve("checkpoint/_skewless/pins/4")))
      } finally {
        zombie.release()
        HaltingFileSystem.hook = (_, _) => ()
        org.apache.spark.util.Utils.deleteRecursively(dir.toFile)
      }
    }
    if (changelogs) TestSpark.withFiles()(body()) else body() // else tasks carry the state that moves
  }

  /** Holds the first task that is about to make version 4 of a store. */
  private final class Zombie(store: Path) {
    private val (held, let, over) = (new CountDownLatch(1), new CountDownLatch(1), new CountDownLatch(1))
    @volatile private var thread: Thread = _

    def hold(operation: String, path: HadoopPath): Unit = if (isCommit(path)) {
      if (operation == "rename" && claim()) awaitWhateverHappens()
      if (operation == "renamed" && Thread.currentThread == thread) over.countDown()
    }

    private def isCommit(path: HadoopPath): Boolean =
      path.toUri.getPath.startsWith(store.toString) && path.getName.matches("4(_.*)?[.](zip|changelog)")

    private def claim(): Boolean = synchronized {
      val isFirst = thread == null
      if (isFirst) thread = Thread.currentThread
      isFirst
    }

    /** Its run is stopped and interrupts it; a task on a host that nobody reaches does not notice. */
    private def awaitWhateverHappens(): Unit = {
      held.countDown()
      while (let.getCount > 0)
        try let.await()
        catch { case _: InterruptedException => () }
    }

    def isHeld: Boolean = held.await(2, TimeUnit.MINUTES)

    def release(): Unit = {
      let.countDown()
      if (held.getCount == 0) over.await(1, TimeUnit.MINUTES)
      ()
    }

    /** The files of version 4, each with its identity on the disk. */
    def files: Map[String, AnyRef] = Using.resource(Files.walk(store)) {
      _.iterator.asScala
        .filter(f => isCommit(new HadoopPath(f.toUri)))
        .map(f => f.toString -> Files.getAttribute(f, "unix:ino"))
        .toMap
    }
  }
}
