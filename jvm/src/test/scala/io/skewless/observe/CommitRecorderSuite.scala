package io.skewless.observe

import org.scalatest.funsuite.AnyFunSuite

/** What a batch's progress tells besides its commit. */
class CommitRecorderSuite extends AnyFunSuite {

  test("of each partition the oldest snapshot of its stores is kept, until Spark names it again") {
    val recorder = new CommitRecorder(10)
    recorder.snapshotsTold(
      "q",
      Seq(
        "SnapshotLastUploaded.partition_3_left-keyToNumValues" -> 7L,
        "SnapshotLastUploaded.partition_3_default" -> 4L,
        "SnapshotLastUploaded.partition_12_default" -> -1L,
        "rocksdbCommitFlushLatency" -> 1L
      )
    )
    assert(recorder.snapshotsOf("q") == Map(3 -> 4L, 12 -> -1L))
    recorder.snapshotsTold("q", Seq("SnapshotLastUploaded.partition_3_default" -> 9L))
    assert(recorder.snapshotsOf("q") == Map(3 -> 9L, 12 -> -1L))
    assert(recorder.snapshotsOf("another").isEmpty)
    recorder.forget("q")
    assert(recorder.snapshotsOf("q").isEmpty)
  }
}
