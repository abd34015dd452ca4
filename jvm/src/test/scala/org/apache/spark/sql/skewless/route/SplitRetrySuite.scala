package org.apache.spark.sql.skewless.route

import io.skewless.TestSpark
import io.skewless.table.{SharedTable, Table}
import org.apache.spark.SparkException
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{CollationAwareMurmur3Hash, Expression}
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioning, Partitioning}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.{FetchFault, LoadPartitioning, ReorderedExec}
import org.scalatest.funsuite.AnyFunSuite

/**
 * Splits are exact under retry: a mapper runs again after some reducers have finished, sees its rows in
 * another order, and no row is lost or doubled. Beside it, that a choice by load does lose rows under the
 * same fault: the reason for the rule.
 */
class SplitRetrySuite extends AnyFunSuite with TestSpark with AdaptiveSparkPlanHelper {

  private val n = 8
  private val rowCount = 4000L

  private val keyCount = 40

  /** Forty keys, the first of which has half of the rows. */
  private def input(mappers: Int): DataFrame = spark
    .range(0, rowCount, 1, mappers)
    .select(col("id"), when(col("id") % 2 === 0, lit(0L)).otherwise(col("id") % keyCount).as("k"))

  private lazy val hashes: Seq[Int] =
    spark.range(keyCount).select(Routing.keyHash(spark, Seq(col("id")))).collect().map(_.getInt(0)).toSeq

  private def splits(width: Int): Table =
    Table(
      n,
      hashes.map(hash => hash -> (0 until width).map(i => Math.floorMod(hash + i, n))).toMap,
      epoch = 1
    )

  private def checksums(on: Boolean): Seq[(String, String)] = Seq(
    "spark.sql.shuffle.orderIndependentChecksum.enabled" -> on.toString,
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch" -> on.toString,
    "spark.sql.adaptive.enabled" -> "false"
  )

  /** Order-free: how many rows, and the sum and the exclusive or of a hash of each. */
  private case class Checksum(rows: Long, sum: Long, xor: Long)
  private def checksum(ids: Iterable[Long]): Checksum = {
    val mixed = ids.map(id => scala.util.hashing.byteswap64(id + 1))
    Checksum(mixed.size.toLong, mixed.sum, mixed.foldLeft(0L)(_ ^ _))
  }

  private lazy val expected: Checksum = checksum(0L until rowCount)

  /**
   * Reads the exchange under the fault; asserts that the fault came after some reducers had finished, and
   * that stages ran again.
   */
  private def underFault(rows: RDD[InternalRow]): Array[Array[Long]] = {
    val witness = new FetchFault.Witness
    spark.sparkContext.addSparkListener(witness)
    try FetchFault.collectIds(rows, FetchFault.shuffleOf(rows))
    finally {
      spark.sparkContext.listenerBus.waitUntilEmpty()
      spark.sparkContext.removeSparkListener(witness)
      assert(witness.fetchFailures.get() > 0, "no fetch failure: the fault did not fire")
      assert(
        witness.resultsBefore == FetchFault.ReducersBefore,
        s"${witness.resultsBefore} reducers had finished when the fault came"
      )
      assert(witness.reattempted >= 1, "no stage ran again")
    }
  }

  /** The rows of an exchange over reordered mappers, under a partitioning made from the key. */
  private def exchanged(
      mappers: Int
  )(partitioning: (Expression, Seq[Expression]) => Partitioning): RDD[InternalRow] =
    spark.withActive {
      val child = ReorderedExec(input(mappers).queryExecution.executedPlan)
      ShuffleExchangeExec(partitioning(child.output(1), child.output), child).execute()
    }

  private def routed(table: Table, byContent: Boolean)(key: Expression, row: Seq[Expression]): Partitioning =
    new RoutedPartitioning(
      Seq(key),
      n,
      SharedTable(table, spark.sparkContext),
      if (byContent) Some(new CollationAwareMurmur3Hash(row)) else None
    )

  /** In how many partitions the hot key is. */
  private def hotPartitions(ids: Array[Array[Long]]): Int =
    ids.count(_.exists(id => id % 2 == 0 || id % keyCount == 0))

  for (on <- Seq(false, true)) {
    val checksumRetry = s"checksum retry ${if (on) "on" else "off"}"

    test(s"as many mappers as targets, $checksumRetry: no row of a split key is lost or doubled") {
      withConf(checksums(on): _*) {
        val ids = underFault(exchanged(4)(routed(splits(4), byContent = true)))
        assert(checksum(ids.flatten) == expected && hotPartitions(ids) == 4)
      }
    }

    test(
      s"fewer mappers than targets, content decides, $checksumRetry: no row of a split key is lost or doubled"
    ) {
      withConf(checksums(on): _*) {
        val ids = underFault(exchanged(2)(routed(splits(6), byContent = true)))
        assert(checksum(ids.flatten) == expected && hotPartitions(ids) == 6)
      }
    }

    test(
      s"fewer mappers than targets, content may not decide, $checksumRetry: no row of a split key is lost " +
        "or doubled"
    ) {
      withConf(checksums(on): _*) {
        val ids = underFault(exchanged(2)(routed(splits(6), byContent = false)))
        assert(checksum(ids.flatten) == expected && hotPartitions(ids) == 2)
      }
    }

    test(s"a split through repartition, $checksumRetry: no row is lost or doubled") {
      withConf(checksums(on): _*) {
        for ((mappers, width, partitions) <- Seq((4, 3, 3), (2, 5, 5))) {
          val df = Routing.repartition(input(mappers), n, Seq(col("k")), Some(splits(width)))
          assert(contentOf(df).isDefined)
          val ids = underFault(df.queryExecution.toRdd)
          assert(checksum(ids.flatten) == expected && hotPartitions(ids) == partitions)
        }
      }
    }

    test(s"a split above another shuffle, $checksumRetry: no row is lost or doubled") {
      withConf(checksums(on): _*) {
        val shuffled = input(3).repartition(4, col("id")).groupBy("id").agg(first("k").as("k"))
        val df = Routing.repartition(shuffled, n, Seq(col("k")), Some(splits(6)))
        assert(contentOf(df).isEmpty)
        assert(checksum(underFault(df.queryExecution.toRdd).flatten) == expected)
      }
    }
  }

  test("the fault itself loses nothing under plain hashing") {
    withConf(checksums(on = false): _*) {
      val ids = underFault(exchanged(4)((key, _) => HashPartitioning(Seq(key), n)))
      assert(checksum(ids.flatten) == expected)
    }
  }

  test("danger: a choice by load loses and doubles rows under the same fault, with the checksum retry off") {
    withConf(checksums(on = false): _*) {
      val ids = underFault(exchanged(4)((key, _) => new LoadPartitioning(Seq(key), n))).flatten
      val lost = rowCount - ids.distinct.length
      val doubled = ids.length - ids.distinct.length
      assert(lost > 0 && doubled > 0 && checksum(ids) != expected, s"$lost lost, $doubled doubled")
    }
  }

  test(
    "danger: with the checksum retry on, a choice by load fails the job or starts it over, and is never " +
      "silent"
  ) {
    withConf(checksums(on = true): _*) {
      try
        assert(
          checksum(
            underFault(exchanged(4)((key, _) => new LoadPartitioning(Seq(key), n))).flatten
          ) == expected
        )
      catch { case e: SparkException => assert(e.getMessage.contains("indeterminate"), e) }
    }
  }

  // -- Spark's own injection: every mapper's first output is lost
  // -----------------------------------------------------------

  private def withLostOutputs[T](body: => T): T = {
    val key = "spark.testing.injectShuffleFetchFailures"
    val witness = new FetchFault.Witness
    spark.sparkContext.addSparkListener(witness)
    spark.sparkContext.conf.set(key, "true")
    try body
    finally {
      spark.sparkContext.conf.remove(key)
      spark.sparkContext.listenerBus.waitUntilEmpty()
      spark.sparkContext.removeSparkListener(witness)
      assert(
        witness.fetchFailures.get() > 0 && witness.reattempted >= 2,
        "no fetch failure: the fault did not fire"
      )
    }
  }

  test("whole queries over splits and moves equal plain Spark's when every mapper's first output is lost") {
    val moves = Table(n, hashes.map(hash => hash -> Seq(Math.floorMod(hash + 3, n))).toMap)
    for (adaptive <- Seq(true, false); (table, mappers) <- Seq((splits(6), 2), (splits(2), 3), (moves, 3)))
      withConf("spark.sql.adaptive.enabled" -> adaptive.toString) {
        def query(df: DataFrame) =
          df.groupBy("k").agg(count("*"), sum("id"), sum(xxhash64(col("id")) % 1000003)).orderBy("k")
        val plain = query(input(mappers)).collect().toSeq
        val survived = withLostOutputs(
          query(Routing.repartition(input(mappers), n, Seq(col("k")), Some(table))).collect().toSeq
        )
        assert(survived == plain)
      }
  }

  // -- whether content may decide
  // ---------------------------------------------------------------------------------------------

  private def contentOf(df: DataFrame): Option[Expression] = collect(df.queryExecution.executedPlan) {
    case exchange: ShuffleExchangeExec => exchange.outputPartitioning
  }.collectFirst { case routed: RoutedPartitioning => routed.content }.get

  private def mayDecide(df: DataFrame): Boolean =
    withConf("spark.sql.adaptive.enabled" -> "false")(
      contentOf(Routing.repartition(df, n, Seq(col("k")), Some(splits(3)))).isDefined
    )

  test("content decides over rows that come back the same in every attempt") {
    val df = input(2)
    assert(mayDecide(df))
    assert(mayDecide(df.filter(col("id") > 5).select(col("k"), (col("id") * 2).as("d"))))
    assert(mayDecide(df.union(input(3))))
    assert(mayDecide(df.select(col("k"), explode(array(col("id"), col("k"))).as("e"))))
  }

  test(
    "content never decides where a retry could see other values: after sums, limits, windows, samples, " +
      "user code and chance"
  ) {
    import org.apache.spark.sql.expressions.Window
    val df = input(2)
    val unsteady = Seq(
      df.groupBy("k").agg(sum(col("id").cast("double") / 3).as("s")),
      df.groupBy("k").agg(collect_list("id").as("all")),
      df.limit(100),
      df.withColumn("rank", row_number().over(Window.partitionBy("k").orderBy("k"))),
      df.withColumn("chance", rand()),
      df.withColumn("number", monotonically_increasing_id()),
      df.withColumn("partition", spark_partition_id()),
      df.filter(rand() > 0.5),
      df.sample(0.5),
      df.join(input(3).withColumnRenamed("id", "other"), "k"),
      df.repartition(3),
      df.dropDuplicates("k"),
      df.sort("id"),
      df.map(row => (row.getLong(0), row.getLong(1)))(org.apache.spark.sql.Encoders.product[(Long, Long)])
        .toDF("id", "k"),
      spark.createDataFrame(df.rdd, df.schema)
    )
    unsteady.foreach(d => assert(!mayDecide(d), d.queryExecution.optimizedPlan))
  }

  test("columns that Spark cannot hash, or hashes differently when compiled, take no part in the choice") {
    val df =
      spark
        .range(0, 10, 1, 2)
        .selectExpr("id k", "make_interval(0, 0, 0, id) i", "array(make_interval(0)) ai", "map(id, 1) m")
    val content = withConf("spark.sql.adaptive.enabled" -> "false") {
      contentOf(Routing.repartition(df, n, Seq(col("k")), Some(splits(3)))).get
    }
    assert(content.references.map(_.name).toSet == Set("k"))
  }
}
