package org.apache.spark.sql.skewless.route

import scala.collection.mutable

import io.skewless.TestSpark
import io.skewless.table.{SharedTable, Table}
import org.apache.spark.ShuffleDependency
import org.apache.spark.rdd.RDD
import org.apache.spark.shuffle.sort.{BypassMergeSortShuffleHandle, SerializedShuffleHandle}
import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.catalyst.expressions.{AttributeReference, Literal}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.exchange.{ReusedExchangeExec, ShuffleExchangeExec}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types.{IntegerType, LongType}
import org.scalatest.funsuite.AnyFunSuite

/** What a routed exchange tells the planner, and that the planner, believing it, loses no row. */
class RoutedPartitioningSuite extends AnyFunSuite with TestSpark with AdaptiveSparkPlanHelper {

  private val n = 8
  private val keyCount = 40

  private lazy val left: DataFrame =
    spark.range(0, 1000, 1, 3).select((col("id") % keyCount).as("k"), col("id").as("l"))
  private lazy val right: DataFrame =
    spark.range(0, 400, 1, 2).select((col("id") % keyCount + 5).as("k"), col("id").as("r"))

  private lazy val hashes: Map[Long, Int] = spark
    .range(keyCount + 5)
    .select(col("id"), Routing.keyHash(spark, Seq(col("id"))))
    .collect()
    .map(row => row.getLong(0) -> row.getInt(1))
    .toMap

  /** Tables in which most keys are not where plain hashing puts them. */
  private def moves(by: Int, partitions: Int = n): Table =
    Table(partitions, hashes.values.map(h => h -> Seq(Math.floorMod(h + by, partitions))).toMap, epoch = by)
  private lazy val splits: Table =
    Table(
      n,
      hashes.values
        .map(h => h -> Seq(Math.floorMod(h + 1, n), Math.floorMod(h + 3, n), Math.floorMod(h, n)))
        .toMap,
      epoch = 9
    )

  private def routed(df: DataFrame, table: Table): DataFrame =
    Routing.repartition(df, table.partitions, Seq(col("k")), Some(table))

  /** Runs the body with adaptive execution on and off. */
  private def adaptiveOrNot(body: Boolean => Unit): Unit = Seq(true, false).foreach { adaptive =>
    withConf("spark.sql.adaptive.enabled" -> adaptive.toString)(
      withClue(s"adaptive: $adaptive: ")(body(adaptive))
    )
  }

  private def planOf(df: DataFrame): SparkPlan = df.queryExecution.executedPlan
  private def shuffles(df: DataFrame): Seq[ShuffleExchangeExec] = collect(planOf(df)) {
    case exchange: ShuffleExchangeExec =>
      exchange
  }
  private def tablesOf(df: DataFrame): Seq[Option[Table]] = shuffles(df).map(_.outputPartitioning).map {
    case routed: RoutedPartitioning => Some(routed.table)
    case _ => None
  }

  private def rows(df: DataFrame): Seq[Row] = df.collect().toSeq.sortBy(_.toString)

  /** The rows equal plain Spark's; gives the DataFrame back after it ran, when its plan is final. */
  private def checkEqual(df: DataFrame, plain: DataFrame): DataFrame = {
    val expected = plainRows.getOrElseUpdate(plain.queryExecution.analyzed.canonicalized, rows(plain))
    assert(expected.nonEmpty)
    assert(rows(df) == expected)
    df
  }

  /** Plain Spark's answers, so that each is worked out once. */
  private val plainRows = mutable.HashMap.empty[LogicalPlan, Seq[Row]]

  private def counted(df: DataFrame): DataFrame = df
    .groupBy("k")
    .agg(count("*"), sum("l"), collect_set("l").as("all"))
    .select(col("k"), col("count(1)"), col("sum(l)"), sort_array(col("all")))

  test("after moves a groupBy on the key adds no exchange, and is right") {
    adaptiveOrNot { _ =>
      val df = checkEqual(counted(routed(left, moves(1))), counted(left))
      assert(tablesOf(df) == Seq(Some(moves(1))))
    }
  }

  test("after a split a groupBy on the key shuffles again, and is right") {
    adaptiveOrNot { _ =>
      val df = checkEqual(counted(routed(left, splits)), counted(left))
      assert(tablesOf(df).toSet == Set(None, Some(splits)))
      val spread = routed(left, splits).groupBy(spark_partition_id(), col("k")).count().groupBy("k").count()
      assert(spread.filter(col("count") > 1).count() == keyCount, "the split did spread every key")
    }
  }

  test("after a split, distinct, windows and deduplication on the key are right") {
    import org.apache.spark.sql.expressions.Window
    val window = Window.partitionBy("k").orderBy("l")
    adaptiveOrNot { _ =>
      Seq[DataFrame => DataFrame](
        _.select("k").distinct(),
        _.withColumn("rank", row_number().over(window)),
        _.dropDuplicates("k").select("k"),
        _.groupBy("k", "l").count(),
        _.groupBy((col("k") % 3).as("m")).count()
      ).foreach(step => checkEqual(step(routed(left, splits)), step(left)))
    }
  }

  test("aliases and renames keep the claim, and the table") {
    adaptiveOrNot { _ =>
      def renamed(df: DataFrame) =
        df.withColumnRenamed("k", "a").select(col("a").as("b"), col("l")).groupBy("b").agg(sum("l"))
      assert(tablesOf(checkEqual(renamed(routed(left, moves(1))), renamed(left))) == Seq(Some(moves(1))))
      def twice(df: DataFrame) = df.select(col("k"), col("k").as("k2"), col("l")).groupBy("k2").agg(sum("l"))
      assert(tablesOf(checkEqual(twice(routed(left, moves(1))), twice(left))) == Seq(Some(moves(1))))
    }
  }

  private val joinTypes = Seq("inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti")

  /** Every partitioning that the other side of a join with a routed side may have. */
  private def otherSides: Seq[(String, DataFrame)] = Seq(
    "not partitioned" -> right,
    "hashed by the same number" -> right.repartition(n, col("k")),
    "hashed by another number" -> right.repartition(3, col("k")),
    "hashed by more" -> right.repartition(20, col("k")),
    "grouped" -> right.groupBy("k").agg(max("r").as("r")),
    "in one partition" -> right.coalesce(1),
    "ranged" -> right.repartitionByRange(n, col("k"))
  )

  for ((name, table) <- Seq[(String, () => Table)]("moves" -> (() => moves(1)), "splits" -> (() => splits))) {
    test(s"one side routed by $name, the other not: a join never loses a partner") {
      adaptiveOrNot { _ =>
        otherSides.foreach { case (other, side) =>
          withClue(s"other side $other: ") {
            val plain = if (other == "grouped") side else right
            checkEqual(routed(left, table()).join(side, "k"), left.join(plain, "k"))
            checkEqual(side.join(routed(left, table()), "k"), plain.join(left, "k"))
          }
        }
      }
    }

    test(s"every join type is right with a side routed by $name, hashed and sorted joins alike") {
      for (joinType <- joinTypes) adaptiveOrNot { adaptive =>
        withConf("spark.sql.join.preferSortMergeJoin" -> adaptive.toString)(withClue(s"$joinType: ") {
          checkEqual(
            routed(left, table()).join(right.repartition(n, col("k")), Seq("k"), joinType),
            left.join(right, Seq("k"), joinType)
          )
        })
      }
    }
  }

  test("a broadcast join keeps the claim of moves and of splits") {
    withConf("spark.sql.autoBroadcastJoinThreshold" -> "10000000")(adaptiveOrNot { _ =>
      Seq(moves(1), splits).foreach { table =>
        val small = right.groupBy("k").agg(max("r").as("r"))
        def joined(df: DataFrame) = df.join(broadcast(small), "k").groupBy("k").agg(sum("l"), count("*"))
        checkEqual(joined(routed(left, table)), joined(left))
        def again(df: DataFrame) =
          df.join(broadcast(small), df("k") === small("k"))
            .drop(df("k"))
            .join(right.repartition(n, col("k")), "k")
        checkEqual(again(routed(left, table)), again(left))
      }
    })
  }

  test("two sides routed by the same table join without another shuffle, and right") {
    adaptiveOrNot { _ =>
      val df = checkEqual(routed(left, moves(1)).join(routed(right, moves(1)), "k"), left.join(right, "k"))
      assert(tablesOf(df) == Seq(Some(moves(1)), Some(moves(1))))
    }
  }

  test("a plain side that joins a routed one is shuffled once, by the routed one's table") {
    adaptiveOrNot { _ =>
      Seq(right, right.repartition(n, col("k"))).foreach { side =>
        def joined(l: DataFrame, r: DataFrame) =
          l.join(r, "k").groupBy(col("k").as("key")).agg(sum("l"), sum("r"))
        val df = checkEqual(joined(routed(left, moves(1)), side), joined(left, right))
        assert(tablesOf(df) == Seq(Some(moves(1)), Some(moves(1))))
      }
    }
  }

  test("two sides routed by different tables shuffle again, and are right") {
    adaptiveOrNot { _ =>
      Seq(moves(2), moves(1).withEpoch(7), moves(1, 9), splits).foreach { other =>
        val df = checkEqual(routed(left, moves(1)).join(routed(right, other), "k"), left.join(right, "k"))
        assert(shuffles(df).size > 2, other)
      }
      val df = checkEqual(routed(left, splits).join(routed(right, splits), "k"), left.join(right, "k"))
      assert(tablesOf(df).count(_.isEmpty) == 2, "splits fit nothing, not even themselves")
    }
  }

  test("three sides, one of them plain, join right in any order") {
    adaptiveOrNot { _ =>
      val (a, b) = (routed(left, moves(1)), routed(right, moves(1)))
      val third = right.select(col("k"), (col("r") * 2).as("t")).repartition(n, col("k"))
      val expected = left.join(right, "k").join(third, "k").select("k", "l", "r", "t")
      Seq(a.join(b, "k").join(third, "k"), third.join(a, "k").join(b, "k"), a.join(third, "k").join(b, "k"))
        .foreach(df => checkEqual(df.select("k", "l", "r", "t"), expected))
    }
  }

  test("a join on more than the key, or on a key of another type, is right") {
    adaptiveOrNot { _ =>
      val (l2, r2) = (left.withColumn("m", col("l") % 3), right.withColumn("m", col("r") % 3))
      checkEqual(
        routed(l2, moves(1)).join(r2.repartition(n, col("k")), Seq("k", "m")),
        l2.join(r2, Seq("k", "m"))
      )
      checkEqual(routed(l2, moves(1)).join(routed(r2, moves(1)), Seq("k", "m")), l2.join(r2, Seq("k", "m")))
      val asInt = right.select(col("k").cast(IntegerType).as("k"), col("r"))
      checkEqual(routed(left, moves(1)).join(asInt.repartition(n, col("k")), "k"), left.join(asInt, "k"))
    }
  }

  test("cached routed DataFrames are joined right later, with each other and with plain sides") {
    adaptiveOrNot { _ =>
      val (a, b, c) =
        (routed(left, moves(1)).cache(), routed(right, moves(1)).cache(), routed(right, splits).cache())
      try {
        assert(a.count() == 1000 && b.count() == 400 && c.count() == 400)
        checkEqual(a.join(b, "k"), left.join(right, "k"))
        checkEqual(a.join(right.repartition(n, col("k")), "k"), left.join(right, "k"))
        checkEqual(a.join(c, "k"), left.join(right, "k"))
        checkEqual(counted(a), counted(left))
        checkEqual(c.groupBy("k").count(), right.groupBy("k").count())
      } finally Seq(a, b, c).foreach(_.unpersist(blocking = true))
    }
  }

  test("union and coalesce above a routed exchange keep every row, and a groupBy above them is right") {
    adaptiveOrNot { _ =>
      for (
        table <- Seq(moves(1), splits);
        other <- Seq(routed(left, table), routed(left, moves(2)), left.repartition(n, col("k")))
      ) {
        checkEqual(routed(left, table).union(other), left.union(left))
        checkEqual(counted(routed(left, table).union(other)), counted(left.union(left)))
        checkEqual(
          routed(left, table).union(other).join(right.repartition(n, col("k")), "k"),
          left.union(left).join(right, "k")
        )
      }
      Seq(1, 3).foreach { partitions =>
        Seq(moves(1), splits).foreach { table =>
          checkEqual(routed(left, table).coalesce(partitions), left)
          checkEqual(counted(routed(left, table).coalesce(partitions)), counted(left))
        }
      }
    }
  }

  test("one partition and three hundred partitions") {
    adaptiveOrNot { _ =>
      Seq(Table(1, hashes.values.map(_ -> Seq(0)).toMap), moves(7, 300)).foreach { table =>
        checkEqual(counted(routed(left, table)), counted(left))
        checkEqual(routed(left, table).join(right, "k"), left.join(right, "k"))
        checkEqual(routed(left, table).join(right.coalesce(1), "k"), left.join(right, "k"))
      }
    }
  }

  test("a plain repartition above a routed one wins, and a routed one above a plain one") {
    def placement(df: DataFrame) = rows(df.select(col("l"), spark_partition_id()))
    adaptiveOrNot { _ =>
      assert(
        placement(routed(left, moves(1)).repartition(n, col("k"))) == placement(left.repartition(n, col("k")))
      )
      assert(placement(routed(left.repartition(n, col("k")), moves(1))) == placement(routed(left, moves(1))))
      assert(placement(routed(routed(left, moves(2)), moves(1))) == placement(routed(left, moves(1))))
      assert(placement(routed(left, moves(1))) != placement(left.repartition(n, col("k"))))
    }
  }

  test("a filter, a sort and a limit above a routed exchange are right") {
    adaptiveOrNot { _ =>
      Seq(moves(1), splits).foreach { table =>
        checkEqual(routed(left, table).filter(col("k") === 7), left.filter(col("k") === 7))
        assert(routed(left, table).sort("l").limit(10).collect().map(_.getLong(1)).toSeq == (0L until 10L))
        assert(routed(left.limit(0), table).count() == 0)
        checkEqual(routed(left, table).select("l"), left.select("l"))
      }
    }
  }

  test("one exchange is reused for equal tables, never for different ones or for a plain exchange") {
    withConf("spark.sql.adaptive.enabled" -> "false") {
      def reused(df: DataFrame) = collect(planOf(df)) { case exchange: ReusedExchangeExec => exchange }.size
      def counts(df: DataFrame) = df.groupBy("k").count()
      val twice = counts(routed(left, moves(1))).union(counts(routed(left, moves(1))))
      assert(reused(twice) == 1)
      Seq(moves(2), moves(1).withEpoch(5), splits).foreach { other =>
        val df = routed(left, moves(1)).union(routed(left, other))
        assert(reused(df) == 0)
        def placed(d: DataFrame, offset: Int) =
          d.select(col("l"), spark_partition_id() + offset).collect().toSeq
        val apart = placed(routed(left, moves(1)), 0) ++ placed(routed(left, other), n)
        assert(placed(df, 0).sortBy(_.toString) == apart.sortBy(_.toString))
      }
      assert(reused(routed(left, moves(1)).union(left.repartition(n, col("k")))) == 0)
    }
  }

  // -- the partitioning itself
  // -------------------------------------------------------------------------------------------

  private val (a, b) = (AttributeReference("a", LongType)(), AttributeReference("b", LongType)())
  private def partitioning(table: Table, keys: AttributeReference*) =
    new RoutedPartitioning(keys, table.partitions, SharedTable(table, spark.sparkContext), None)

  test("equality covers the table, both ways round, and never equals plain hashing") {
    val routed = partitioning(moves(1), a)
    assert(routed == partitioning(moves(1), a) && routed.hashCode == partitioning(moves(1), a).hashCode)
    Seq(
      partitioning(moves(2), a),
      partitioning(moves(1), b),
      partitioning(moves(1, 9), a),
      HashPartitioning(Seq(a), n)
    ).foreach { other =>
      assert(routed != other && other != routed && routed.canonicalized != other.canonicalized)
      assert(!routed.semanticEquals(other) && !other.semanticEquals(routed))
    }
    val byContent = new RoutedPartitioning(Seq(a), n, routed.shared, Some(b))
    assert(byContent != routed && routed != byContent)
  }

  test("canonicalizing, transforming, cloning and copying keep the table") {
    val routed = partitioning(moves(1), a)
    def tableOf(p: Any): Table = p match {
      case kept: RoutedPartitioning => kept.table
      case other => fail(s"the table was lost: $other")
    }
    assert(tableOf(routed.canonicalized) == moves(1))
    val renamed = routed.transform { case `a` => b }
    assert(tableOf(renamed) == moves(1) && renamed == partitioning(moves(1), b))
    assert(tableOf(routed.clone()) == moves(1))
    assert(tableOf(routed.withNewChildren(Seq(b))) == moves(1))
    assert(tableOf(routed.mapChildren(_ => Literal(1L))) == moves(1))
    assert(tableOf(routed.makeCopy(Array(Seq(b), Int.box(n)))) == moves(1))
    assert(routed.multiTransformDown { case `a` => Seq(a, b) }.map(tableOf).toSeq == Seq(moves(1), moves(1)))
    assert(tableOf(routed.copy(expressions = Seq(b))) == moves(1))
    assert(
      tableOf(
        CoalescedHashPartitioning(routed, Nil)
          .transform { case `a` => b }
          .asInstanceOf[CoalescedHashPartitioning]
          .from
      ) == moves(1)
    )
    intercept[IllegalStateException](routed.copy(numPartitions = n + 1))
    assert(tableOf(PartitioningCollection(Seq(routed)).transform { case `a` => b }.children.head) == moves(1))
  }

  test(
    "moves satisfy what plain hashing does, splits satisfy no clustering, neither satisfies stateful " +
      "operators"
  ) {
    val plain = HashPartitioning(Seq(a), n)
    val (moved, split) = (partitioning(moves(1), a), partitioning(splits, a))
    val distributions = Seq(
      UnspecifiedDistribution,
      AllTuples,
      ClusteredDistribution(Seq(a)),
      ClusteredDistribution(Seq(a, b)),
      ClusteredDistribution(Seq(b)),
      ClusteredDistribution(Seq(a), requiredNumPartitions = Some(n)),
      ClusteredDistribution(Seq(a), requiredNumPartitions = Some(n + 1)),
      ClusteredDistribution(Seq(a, b), requireAllClusterKeys = true),
      BroadcastDistribution(IdentityBroadcastMode)
    )
    distributions.foreach(d => assert(moved.satisfies(d) == plain.satisfies(d), d))
    assert(distributions.filter(split.satisfies(_)) == Seq(UnspecifiedDistribution))
    val stateful = StatefulOpClusteredDistribution(Seq(a), n)
    assert(plain.satisfies(stateful) && !moved.satisfies(stateful) && !split.satisfies(stateful))
  }

  test("a shuffle spec fits the same table only, whichever side asks") {
    val clustered = ClusteredDistribution(Seq(a))
    def spec(p: Partitioning) = p.createShuffleSpec(clustered)
    val routed = spec(partitioning(moves(1), a))
    assert(routed.isCompatibleWith(spec(partitioning(moves(1), a))))
    Seq(
      partitioning(moves(2), a),
      partitioning(splits, a),
      HashPartitioning(Seq(a), n),
      RangePartitioning(Nil, n)
    ).foreach { other =>
      assert(!routed.isCompatibleWith(spec(other)) && !spec(other).isCompatibleWith(routed), other)
    }
    assert(!spec(partitioning(splits, a)).isCompatibleWith(spec(partitioning(splits, a))))
    assert(!spec(partitioning(splits, a)).canCreatePartitioning)
  }

  test("the serialized shuffle is kept: the handles are those of a plain repartition") {
    def handle(df: DataFrame): Class[_] = {
      def find(rdd: RDD[_]): Option[ShuffleDependency[_, _, _]] = rdd.dependencies.iterator
        .map {
          case shuffle: ShuffleDependency[_, _, _] => Some(shuffle)
          case other => find(other.rdd)
        }
        .collectFirst { case Some(shuffle) => shuffle }
      withConf("spark.sql.adaptive.enabled" -> "false") {
        find(df.asInstanceOf[Dataset[_]].queryExecution.toRdd).get.shuffleHandle.getClass
      }
    }
    Seq(8 -> classOf[BypassMergeSortShuffleHandle[_, _]], 300 -> classOf[SerializedShuffleHandle[_, _]])
      .foreach { case (partitions, kind) =>
        assert(handle(left.repartition(partitions, col("k"))) == kind)
        assert(handle(routed(left, moves(1, partitions))) == kind)
      }
    assert(handle(routed(left, splits)) == classOf[BypassMergeSortShuffleHandle[_, _]])
  }
}
