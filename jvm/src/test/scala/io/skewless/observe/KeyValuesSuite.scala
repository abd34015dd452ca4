package io.skewless.observe

import java.io.{ByteArrayOutputStream, ObjectOutputStream}

import scala.util.Random

import io.skewless.SkewlessConf
import org.scalatest.funsuite.AnyFunSuite

/** The values of hot keys: few, bounded, and none unless asked for. */
class KeyValuesSuite extends AnyFunSuite {

  private val tracked = 64

  /** Shows every row to a sampler; gives what it found, and how many values it asked for. */
  private def sampled(keys: Iterator[Int]): (KeyValues, Int) = {
    val sampler = new KeySampler(tracked, seed = 3, new ValueSample(tracked))
    var rendered = 0
    keys.foreach { key =>
      sampler.see(key)
      if (sampler.values.wanted) { rendered += 1; sampler.values.take(s"key $key") }
    }
    (sampler.keyValues, rendered)
  }

  test("a hot key has its value, however late it comes, among however many cold ones") {
    val random = new Random(5)
    def rows(hot: Int) =
      Iterator.fill(40000)(if (random.nextInt(10) == 0) hot else 100 + random.nextInt(1 << 20))
    val (found, _) = sampled(rows(7) ++ rows(8))
    assert(found.byHash(7) == Set("key 7") && found.byHash(8) == Set("key 8"))
  }

  test("values are asked for rarely, and never more of them are kept than keys are tracked") {
    val random = new Random(6)
    val (found, rendered) = sampled(Iterator.fill(200000)(random.nextInt(1 << 20)))
    assert(found.byHash.size <= tracked)
    assert(rendered <= tracked * 12, "a harmonic sum, not one a row")
    val (even, asked) = sampled(Iterator.tabulate(200000)(_ % tracked))
    assert(even.byHash.size <= tracked && asked <= 12 * tracked)
  }

  test("a row that the sampler passes over is never asked for") {
    val sampler = new KeySampler(tracked, seed = 3, new ValueSample(tracked))
    (0 until KeySampler.ExactRows).foreach { _ =>
      sampler.see(1); if (sampler.values.wanted) sampler.values.take("one")
    }
    val asked = (0 until 10 * KeySampler.Stride).count { i =>
      sampler.see(1000 + i)
      val wanted = sampler.values.wanted
      if (wanted) sampler.values.take(s"$i")
      wanted
    }
    assert(asked == 0, "keys of one row in thousands do not stand out")
  }

  test("a value that cannot be rendered is not asked for again and not shown") {
    val sampler = new KeySampler(tracked, seed = 3, new ValueSample(tracked))
    sampler.see(1)
    assert(sampler.values.wanted)
    sampler.values.take(null)
    sampler.see(1)
    assert(!sampler.values.wanted && sampler.keyValues.byHash.isEmpty)
  }

  test("keys that share a hash are both named, of more than two the first two") {
    def one(text: String) = new KeyValues(Map(5 -> Set(text)))
    assert(KeyValues.merge(Seq(one("b"), one("a"), one("b"))) == Map(5 -> "a or b"))
    assert(KeyValues.merge(Seq("d", "c", "a", "b").map(one)) == Map(5 -> "a or b"))
    assert(
      KeyValues.json(Map(-5 -> "x \"y\"\u00e9")) == "{\"-5\":\"x \\\"y\\\"\u00e9\"}" && KeyValues.json(
        Map.empty
      ) == "{}"
    )
  }

  test("the driver keeps the values of so many keys of a batch and no more") {
    val many = new KeyValues((0 until KeyValues.MaxKeys).map(i => i -> Set(s"$i")).toMap)
    val more = many ++ new KeyValues(Map(-1 -> Set("late"), 0 -> Set("zero")))
    assert(
      more.byHash.size == KeyValues.MaxKeys && !more.byHash.contains(-1) && more.byHash(0) == Set("0", "zero")
    )
  }

  test("without the setting a task has nowhere to put a value, and sends none") {
    val sampler = new KeySampler(tracked, seed = 3)
    (0 until 1000).foreach(sampler.see)
    assert(sampler.values == null && sampler.keyValues.byHash.isEmpty)
    assert(!SkewlessConf.KeyValues.default)
  }

  test("what Spark writes of a task's end to its event log does not show values, even with the setting") {
    val count = KeyCount(0, Array.emptyByteArray, new KeyValues(Map(5 -> Set("a secret"))))
    assert(!count.toString.contains("secret") && count.toString.contains("values of 1 keys"))
    new ObjectOutputStream(new ByteArrayOutputStream).writeObject(count) // it can travel
  }
}
