package io.skewless

import scala.util.Random

import io.skewless.table.Table
import org.apache.spark.{HashPartitioner, ShuffleDependency}
import org.apache.spark.rdd.RDD
import org.scalatest.funsuite.AnyFunSuite

class RoutedPartitionerSuite extends AnyFunSuite with TestSpark {

  private val keys: Seq[Any] = {
    val random = new Random(31)
    Seq[Any](
      null,
      "",
      "a",
      'c',
      1,
      -1,
      Int.MinValue,
      Int.MaxValue,
      0L,
      Long.MinValue,
      1.5,
      Double.NaN,
      -0.0,
      0.0,
      1.5f,
      true,
      ()
    ) ++
      Seq[Any](
        BigDecimal("1.50"),
        Some(3),
        None,
        (1, "x"),
        List(1, 2),
        Map(1 -> 2),
        java.time.LocalDate.of(1500, 1, 1)
      ) ++
      Seq.fill(500)(random.nextInt()) ++ Seq.fill(500)(random.nextLong()) ++ Seq.fill(500)(
        random.nextString(random.nextInt(9))
      )
  }

  private def hashOf(key: Any): Int = if (key == null) 0 else key.hashCode

  test("an empty table is Spark's HashPartitioner, for every kind of key and null") {
    for (n <- Seq(1, 2, 7, 200)) {
      val (routed, plain) = (new RoutedPartitioner(Table.empty(n)), new HashPartitioner(n))
      assert(routed.numPartitions == plain.numPartitions)
      keys.foreach(key => assert(routed.getPartition(key) == plain.getPartition(key), s"$key over $n"))
    }
  }

  test("a full table sends every key where it says, null included") {
    val random = new Random(32)
    val moves = keys.map(hashOf).distinct.map(hash => hash -> Seq(random.nextInt(7))).toMap
    val routed = new RoutedPartitioner(Table(7, moves))
    keys.foreach(key => assert(routed.getPartition(key) == moves(hashOf(key)).head, s"$key"))
  }

  test("a move takes only its own key") {
    val (routed, plain) =
      (new RoutedPartitioner(Table(7, Map("a".hashCode -> Seq(5)))), new HashPartitioner(7))
    assert(plain.getPartition("a") != 5)
    keys.foreach(key => assert(routed.getPartition(key) == (if (key == "a") 5 else plain.getPartition(key))))
  }

  test("equality is equality of the table") {
    val routed = new RoutedPartitioner(Table(7, Map(1 -> Seq(2)), epoch = 3))
    val twin = new RoutedPartitioner(Table(7, Map(1 -> Seq(2)), epoch = 3))
    assert(routed == twin && routed.hashCode == twin.hashCode)
    Seq(
      Table(7, Map(1 -> Seq(3)), epoch = 3),
      Table(8, Map(1 -> Seq(2)), epoch = 3),
      Table(7, Map(1 -> Seq(2)), epoch = 4)
    )
      .foreach(table => assert(routed != new RoutedPartitioner(table)))
    assert(
      routed != new HashPartitioner(7) && new HashPartitioner(7) != new RoutedPartitioner(Table.empty(7))
    )
  }

  test("a table with splits is refused") {
    val error = refusal("TableError")(new RoutedPartitioner(Table(7, Map(1 -> Seq(2, 3)))))
    assert(error.getMessage.contains("Use moves only"))
  }

  private def shuffles(rdd: RDD[_]): Set[Int] = rdd.dependencies.flatMap { dependency =>
    shuffles(dependency.rdd) ++ Some(dependency).collect { case shuffle: ShuffleDependency[_, _, _] =>
      shuffle.shuffleId
    }
  }.toSet

  private def pairs(value: String): RDD[(Int, String)] =
    spark.sparkContext.parallelize((0 until 300).map(i => (i % 50) -> s"$value$i"), 3)

  test("two RDDs routed alike join without another shuffle, and right") {
    val table = Table(5, (0 until 50).map(key => key -> Seq((key * 7 + 1) % 5)).toMap)
    val (left, right) =
      (
        pairs("l").partitionBy(new RoutedPartitioner(table)),
        pairs("r").partitionBy(new RoutedPartitioner(table))
      )
    val joined = left.join(right)
    assert(shuffles(joined) == shuffles(left) ++ shuffles(right) && shuffles(joined).size == 2)
    assert(joined.collect().toSet == pairs("l").join(pairs("r")).collect().toSet)
    val placed = joined.mapPartitionsWithIndex((index, rows) => rows.map(_._1 -> index)).distinct().collect()
    assert(placed.toMap == (0 until 50).map(key => key -> table.route(key)).toMap)
  }

  test("two RDDs routed by different tables, or one routed and one hashed, shuffle again and join right") {
    val left = pairs("l").partitionBy(new RoutedPartitioner(Table(5, Map(1 -> Seq(4), 2 -> Seq(0)))))
    val expected = pairs("l").join(pairs("r")).collect().toSet
    Seq(new RoutedPartitioner(Table(5, Map(1 -> Seq(3)))), new HashPartitioner(5)).foreach { other =>
      val right = pairs("r").partitionBy(other)
      val joined = left.join(right)
      assert(shuffles(joined).size == 3)
      assert(joined.collect().toSet == expected)
    }
  }
}
