package io.skewless.observe

import java.nio.{ByteBuffer, ByteOrder}

import io.skewless.TestSpark
import org.apache.spark.SparkConf
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.{Queries, SparkPrivate}
import org.apache.spark.sql.skewless.route.Routing
import org.scalatest.funsuite.AnyFunSuite

/** Which executors are alive, how many tasks each runs, and where the tasks of an exchange ran. */
class SlotRecorderSuite extends AnyFunSuite with TestSpark {

  test("executors come, are excluded, return and go") {
    val recorder = new SlotRecorder(taskCpus = 2)
    recorder.added("1", 4)
    recorder.added("2", 7)
    assert(recorder.alive.byExecutor == Seq("1" -> 2, "2" -> 3))
    recorder.exclude("1")
    assert(recorder.alive.byExecutor == Seq("2" -> 3))
    recorder.include("1")
    recorder.removed("2")
    assert(recorder.alive.byExecutor == Seq("1" -> 2))
    assert(recorder.alive.indexOf("1") == 0 && recorder.alive.indexOf("2") == -1)
    assert(recorder.alive.indexOf(null) == -1)
  }

  test("an executor that was excluded and removed starts afresh") {
    val recorder = new SlotRecorder(taskCpus = 1)
    recorder.added("1", 4)
    recorder.exclude("1")
    recorder.removed("1")
    recorder.added("1", 4)
    assert(recorder.alive.byExecutor == Seq("1" -> 4))
  }

  test("how long tasks have run counts from an executor's coming to its going") {
    val recorder = new SlotRecorder(taskCpus = 1)
    recorder.added("1", 4)
    recorder.ran("1", 300)
    recorder.ran("1", 40)
    assert(recorder.alive.busyMs == Map("1" -> 340))
    recorder.removed("1")
    assert(recorder.alive.busyMs.isEmpty)
  }

  test("settings of Spark: CPUs per task, and the wait for a local slot") {
    val conf = new SparkConf(false)
    assert(Slots.taskCpus(conf) == 1 && Slots.localityWaitMs(conf) == 3000)
    conf.set("spark.task.cpus", "2").set("spark.locality.wait", "500ms")
    assert(Slots.taskCpus(conf) == 2 && Slots.localityWaitMs(conf) == 500)
    conf.set("spark.locality.wait.process", "1s")
    assert(Slots.localityWaitMs(conf) == 1000)
  }

  test("the tasks of an exchange tell where and when they ran") {
    val context = spark.sparkContext
    val before = Queries.listener(context).loads("").toSet
    Routing.repartition(spark.range(100).toDF("k"), 4, Seq(col("k")), None).collect()
    SparkPrivate.drainListeners(context)
    val loads = Queries.listener(context).loads("").filterNot(before.contains).head
    assert(loads.executors.forall(_ == "driver"))
    assert(loads.startedAt.forall(_ > 0))
    val (keys, state) = (HotKeys(Array(), Array(), 0), KnownState(Array(), Array(), Array()))
    assert(loads.cpuMs.zip(loads.runMs).forall { case (cpu, run) => cpu >= 0 && cpu <= run + 50 })
    assert(loads.remoteBytes.forall(_ == 0)) // there is no other executor
    val slots = Slots(Seq("gone" -> 3, "driver" -> 2), Map("driver" -> 70L))
    val seen =
      new ObservedBatch(0, 10, Seq(loads), keys, state, slots, 3000, snapshots = Map(1 -> 8L, 2 -> -1L))
    assert(seen.executorIds == "gone\ndriver" && longs(seen.executorBusyMs) == Seq(0, 70))
    assert(longs(seen.snapshotVersions) == Seq(-2, 8, -1, -2))
    assert(longs(seen.cpuMs) == loads.cpuMs.toSeq && longs(seen.remoteBytes) == Seq(0, 0, 0, 0))
    assert(ints(seen.executors) == Seq(1, 1, 1, 1) && ints(seen.executorSlots) == Seq(3, 2))
    val starts = longs(seen.startMs)
    assert(starts.min == 0 && starts.forall(_ < 600000))
  }

  private def ints(bytes: Array[Byte]): Seq[Int] = {
    val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer()
    Seq.fill(buffer.remaining)(buffer.get())
  }

  private def longs(bytes: Array[Byte]): Seq[Long] = {
    val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer()
    Seq.fill(buffer.remaining)(buffer.get())
  }
}
