package org.apache.spark.sql.skewless.ui

import org.apache.spark.SparkConf
import org.apache.spark.status.ElementTrackingStore
import org.apache.spark.util.JsonProtocol
import org.apache.spark.util.kvstore.InMemoryStore
import org.scalatest.funsuite.AnyFunSuite

class NewsListenerSuite extends AnyFunSuite {

  private def store() = new ElementTrackingStore(new InMemoryStore, new SparkConf(false))

  private def batch(number: Long, rows: Long = 10) =
    BatchView(number, 0, 0, 900, None, rows, 0.5, 4, 2, Seq(1.5, 0.5), Seq(HotKey(-7, 0.25)))

  private def swap(epoch: Long, gain: String) =
    SwapView(3, epoch, "1 key moved", Some(10), None, None, Some(0.1), None, gain, "gain")

  private def query(id: String, batches: Seq[BatchView] = Nil, swaps: Seq[SwapView] = Nil) =
    QueryView(id, id, running = true, "the loop", 1, 2, "level", Map("odd" -> 2), batches, swaps)

  private def news(queries: QueryView*) = LoopNews(queries.map(_.json).mkString("[", ",", "]"))

  test("news add up, and what is told again takes the place of what was told before") {
    val kept = store()
    val listener = new NewsListener(kept, live = true)
    listener.onOtherEvent(news(query("a", Seq(batch(1), batch(2)), Seq(swap(1, "no batch since")))))
    listener.onOtherEvent(news(query("a", Seq(batch(2, rows = 11), batch(3)), Seq(swap(1, "half the time")))))
    val Seq(found) = NewsListener.queries(kept): @unchecked
    assert(found.batches.map(b => b.batch -> b.rows) == Seq(1 -> 10, 2 -> 11, 3 -> 10))
    assert(found.swaps.map(_.gain) == Seq("half the time"))
    assert(found.errors == Map("odd" -> 2))
    assert(found.lastBatch.map(_.hot) == Some(Seq(HotKey(-7, 0.25))))
  }

  test("only so many batches of so many queries are kept") {
    val kept = store()
    val listener = new NewsListener(kept, live = true)
    listener.onOtherEvent(news(query("ended").copy(running = false)))
    (0L until 300L).foreach(number => listener.onOtherEvent(news(query("long", Seq(batch(number))))))
    (1 to NewsListener.KeptQueries - 1).foreach(i => listener.onOtherEvent(news(query(s"q$i"))))
    val found = NewsListener.queries(kept)
    assert(found.size == NewsListener.KeptQueries)
    assert(!found.exists(_.id == "ended"))
    assert(found.find(_.id == "long").get.batches.map(_.batch) == (100L until 300L))
  }

  test("the history server's listener writes once all has been read") {
    val kept = store()
    new NewsListener(kept, live = false).onOtherEvent(news(query("a", Seq(batch(1)))))
    assert(NewsListener.queries(kept).isEmpty)
    kept.close(false)
    assert(NewsListener.queries(kept).map(_.id) == Seq("a"))
  }

  test("an event is the same after the event log") {
    val event = news(query("a <b>", Seq(batch(1)), Seq(swap(1, "none"))))
    assert(JsonProtocol.sparkEventFromJson(JsonProtocol.sparkEventToJsonString(event)) == event)
    assert(QueryView.read(event.news) == Seq(query("a <b>", Seq(batch(1)), Seq(swap(1, "none")))))
  }

  test("news that cannot be read are left out, and the next ones are taken") {
    val kept = store()
    val listener = new NewsListener(kept, live = true)
    Seq("", "{", """[{"id":1}]""").foreach(odd => listener.onOtherEvent(LoopNews(odd)))
    listener.onOtherEvent(news(query("a")))
    assert(NewsListener.queries(kept).map(_.id) == Seq("a"))
  }

  test("odd shapes are drawn, and text is escaped") {
    val odd = batch(1).copy(loads = Seq.fill(1000)(0.1 + 1e-9), rows = 1)
    for (batches <- Seq(Seq(batch(0, rows = 0)), Seq(odd), Seq(batch(0), odd.copy(batch = 500)))) {
      val plots = new Plots(batches, Seq(swap(1, "").copy(what = "<script>")))
      val drawn = plots.heat.toString + plots.curves(Seq("<x>" -> batches.map(_.batch -> 0.0)))
      assert(!drawn.contains("<script>") && !drawn.contains("<x>") && !drawn.contains("NaN"))
    }
  }
}
