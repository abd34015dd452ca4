package io.skewless

import java.nio.file.Files

import io.skewless.Refusals.refusal
import org.apache.spark.SparkConf
import org.scalatest.funsuite.AnyFunSuite

class SkewlessConfSuite extends AnyFunSuite {

  private def read(pairs: (String, String)*): SkewlessConf = SkewlessConf(new SparkConf(false).setAll(pairs))

  private def refused(pairs: (String, String)*): String = refusal("SettingError")(read(pairs: _*)).getMessage

  test("without settings every setting has its default") {
    assert(
      read().maxEntries == SkewlessConf.MaxEntries.default &&
        read().retainedBatches == SkewlessConf.RetainedBatches.default
    )
  }

  test("a setting is read, spaces around it are not") {
    assert(read("spark.skewless.table.maxEntries" -> " 3000 ").maxEntries == 3000)
    assert(read("spark.skewless.listener.retainedBatches" -> "7").retainedBatches == 7)
  }

  test("an unknown key is refused, with the known ones") {
    val message = refused("spark.skewless.table.maxEntry" -> "3000")
    assert(
      message.contains("spark.skewless.table.maxEntry") && SkewlessConf.All.forall(s =>
        message.contains(s.key)
      ),
      message
    )
  }

  test("keys of others are none of our business") {
    assert(
      read(
        "spark.skewlessly" -> "x",
        "spark.sql.skewless" -> "y"
      ).maxEntries == SkewlessConf.MaxEntries.default
    )
  }

  test("a value of the wrong type is refused, with what the setting takes") {
    Seq("", "many", "1.5", "3k", "1e3", "0x10", "true", "99999999999").foreach { text =>
      val message = refused("spark.skewless.table.maxEntries" -> text)
      assert(message.contains(s"\"$text\"") && message.contains(SkewlessConf.MaxEntries.range), message)
    }
  }

  test("a number out of its range is refused, the ends of the range are not") {
    Seq("-1", "10000001").foreach(text => refused("spark.skewless.table.maxEntries" -> text))
    Seq("0", "10001", "-5").foreach(text => refused("spark.skewless.listener.retainedBatches" -> text))
    assert(read("spark.skewless.table.maxEntries" -> "0").maxEntries == 0)
    assert(read("spark.skewless.listener.retainedBatches" -> "10000").retainedBatches == 10000)
  }

  test("a table above the limit is refused, one at the limit is not") {
    val conf = read("spark.skewless.table.maxEntries" -> "10")
    conf.checkSize(10)
    assert(refusal("TableError")(conf.checkSize(11)).getMessage.contains("the old table stays in force"))
  }

  test("docs/configuration.md is the generated page") {
    assert(
      Files.readString(Repository.file("docs/configuration.md")) == SkewlessConf.page,
      "write it anew with make docs"
    )
    SkewlessConf.All.foreach(setting => assert(SkewlessConf.page.contains(setting.key)))
  }
}
