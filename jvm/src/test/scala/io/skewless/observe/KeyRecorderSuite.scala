package io.skewless.observe

import org.scalatest.funsuite.AnyFunSuite

/** What the driver keeps of the keys of each batch: the same answers, without the sketches of every task. */
class KeyRecorderSuite extends AnyFunSuite {
  private val (retained, tracked, tasks) = (50, 64, 10)

  /** One task's part: its own key, a key that grows from batch to batch, and the value of that. */
  private def count(task: Int, batch: Int): KeyCount = {
    val sampler = new KeySampler(tracked, seed = 1)
    (0 to batch).foreach(_ => sampler.see(7))
    sampler.see(100 + task)
    KeyCount(task, sampler.bytes, new KeyValues(Map(7 -> Set("seven"), -1 -> Set("nobody"))))
  }

  private def batch(recorder: KeyRecorder, id: Int, accumulator: Long): Unit = {
    recorder.expect(accumulator, "query", id.toLong, JoinInput(isRight = true, "left"))
    (0 until tasks).foreach(task => recorder.record(accumulator, count(task, id)))
  }

  private def rows(recorder: KeyRecorder, id: Int): Map[Int, Long] = {
    val (hot, _) = recorder.of("query", id.toLong)
    assert(hot.rightRows.toSeq == hot.rows.toSeq)
    hot.hashes.zip(hot.rows).toMap
  }

  test("old batches give the same hot keys, values and sides, and hold no sketch of a task any more") {
    val recorder = new KeyRecorder(retained, tracked)
    for (id <- 0 until retained) {
      batch(recorder, id, id.toLong)
      assert(recorder.sketches("query") <= KeyRecorder.Unsettled * tasks, "however many batches there were")
    }
    for (id <- 0 until retained) {
      assert(rows(recorder, id) == (0 until tasks).map(t => (100 + t) -> 1L).toMap + (7 -> tasks * (id + 1L)))
      assert(recorder.of("query", id.toLong)._2 == Map(7 -> "seven"))
      assert(recorder.sides("query", id.toLong) == "left")
    }
    assert(recorder.newest("query").contains(7))
  }

  test(
    "a task that is heard of late counts, unless its batch is long over; a batch that runs again counts anew"
  ) {
    val recorder = new KeyRecorder(retained, tracked)
    (0 to 6).foreach(id => batch(recorder, id, id.toLong))
    recorder.record(6, count(tasks, 6))
    recorder.record(0, count(tasks, 0))
    assert(rows(recorder, 6).contains(100 + tasks) && !rows(recorder, 0).contains(100 + tasks))
    batch(recorder, 0, 99)
    assert(rows(recorder, 0)(7) == tasks)
    recorder.forget("query")
    assert(recorder.newest("query").isEmpty && recorder.sketches("query") == 0)
  }
}
