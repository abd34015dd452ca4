package org.apache.spark.sql.skewless.route

import scala.jdk.CollectionConverters._

import io.skewless.{SkewlessConf, SkewlessPlugin, TestSpark}
import io.skewless.observe.{Application, KeyCounts, ObservedBatch}
import io.skewless.table.{SharedTable, Table}
import org.apache.spark.{SparkConf, SparkEnv, TaskContext}
import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeProjection}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodeFormatter, CodegenContext}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.skewless.{Operator, Queries, SparkPrivate, StatefulRun}
import org.apache.spark.sql.skewless.split.KeyText
import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods.parse
import org.scalatest.funsuite.AnyFunSuite

/**
 * Key values for people: as `show` prints them, short, only with the setting; without it the generated code
 * is what it was.
 */
class KeySamplingRouteSuite extends AnyFunSuite with StatefulRun {

  private implicit val formats: Formats = DefaultFormats

  private def driver: Application = Application.of(spark.sparkContext).get

  private def withValues[T](on: Boolean)(body: => T): T = {
    val conf = SkewlessConf(new SparkConf(false).set(SkewlessConf.KeyValues.key, on.toString))
    TestSpark.withApplicationConf(conf)(body)
  }

  /** What a watched query with these keys shows of its first batch. */
  private def observed(keys: String*)(source: DataFrame => DataFrame): ObservedBatch =
    withRun(df => Routing.repartition(source(df), n, keys.map(col), None), "append", ours) { run =>
      val query = run.start()
      Queries.watch(query)
      run.stream.addData(input(1).head)
      query.processAllAvailable()
      SparkPrivate.drainListeners(spark.sparkContext)
      val Seq(batch) = driver.listener.observed(query.id.toString, -1): @unchecked
      batch
    }

  private def valuesOf(batch: ObservedBatch): Map[Int, String] =
    parse(batch.keyValues).extract[Map[String, String]].map { case (hash, text) =>
      hash.toInt -> text
    }

  private def expected(df: DataFrame, keys: String*)(text: Row => String): Map[Int, String] =
    df.select(Routing.keyHash(spark, keys.map(col)) +: keys.map(col): _*)
      .distinct()
      .collect()
      .map(r => r.getInt(0) -> text(r))
      .toMap

  private lazy val rows = spark.createDataset(input(1).head).toDF()
  private val long = lpad(col("k"), 100, "\u00e9")

  for (mode <- Seq("CODEGEN_ONLY", "NO_CODEGEN")) {
    def check(name: String)(body: => Unit): Unit =
      test(s"$name ($mode)")(withConf("spark.sql.codegen.factoryMode" -> mode)(withValues(on = true)(body)))

    check("strings stand for themselves, null is told") {
      val found = valuesOf(observed("k")(identity))
      assert(found == expected(rows, "k")(row => if (row.isNullAt(1)) "NULL" else row.getString(1)))
      assert(found.values.toSet("NULL") && found.values.exists(_.startsWith("key-")))
    }

    check("several columns are joined, the same one twice too") {
      val found = valuesOf(observed("k", "g", "k")(identity))
      assert(
        found == expected(rows, "k", "g", "k")(row =>
          (1 to 3).map(i => String.valueOf(row.get(i)).replace("null", "NULL")).mkString(", ")
        )
      )
    }

    check("bytes, structs and times are told as show tells them") {
      def made(df: DataFrame) = df.select(
        encode(col("k"), "UTF-8").as("b"),
        struct(col("g").as("g"), lit(null).cast("string").as("s")).as("st"),
        timestamp_seconds(lit(0)).as("at")
      )
      val found = valuesOf(observed("b", "st", "at")(made))
      def hex(bytes: Array[Byte]) =
        if (bytes == null) "NULL" else bytes.map(b => f"$b%02X").mkString("[", " ", "]")
      assert(found == expected(made(rows), "b", "st", "at") { row =>
        KeyText.short(
          s"${hex(row.getAs[Array[Byte]](1))}, {${row.getStruct(2).getInt(0)}, NULL}, 1970-01-01 00:00:00"
        )
      })
    }

    check("a long text is cut between characters") {
      val found = valuesOf(observed("l")(_.select(long.as("l"))))
      assert(
        found.values.filter(_ != "NULL").forall(text => text == "\u00e9" * 63 + "\u2026") && found.size > 2
      )
    }
  }

  test("what would break or disguise a line becomes a space; half a character never remains") {
    assert(KeyText.short("a\nb\u202ec\u2028d\u0000\ud800") == "a b c d  ")
    assert(KeyText.short("\ud83d\ude00" * 70) == "\ud83d\ude00" * 63 + "\u2026")
    assert(KeyText.short("") == "")
  }

  test("state's keys have values too, in every batch of a swap") {
    withValues(on = true) {
      val states = Operator.named("flatMapGroupsWithState")
      withRun(states.query, states.mode, ours) { run =>
        val query = run.start()
        Queries.watch(query)
        val named = input(3).map(_.map(e => if (e.k == null) e.copy(k = "none") else e))
        input(3).zipWithIndex.foreach { case (rows, i) =>
          if (i == 1) Queries.publish(query, table(hashes(named, "k"), 1), limits)
          run.stream.addData(rows)
          query.processAllAvailable()
        }
        SparkPrivate.drainListeners(spark.sparkContext)
        driver.listener.observed(query.id.toString, -1).zip(named).foreach { case (batch, rows) =>
          assert(valuesOf(batch) == expected(spark.createDataset(rows).toDF(), "k")(_.getString(1)))
        }
      }
    }
  }

  test("without the setting no value reaches the driver") {
    val batch = withValues(on = false)(observed("k")(identity))
    assert(batch.keyValues == "{}" && batch.keyHashes.nonEmpty)
  }

  private def generated(keys: Seq[Attribute], output: Seq[Attribute], counts: Option[KeyCounts]): String = {
    val shared = SharedTable(Table(n, Map(5 -> Seq(1))), spark.sparkContext)
    val id = new RoutedPartitioning(keys, n, shared, None, counts).partitionIdExpression
    val ctx = new CodegenContext
    ctx.INPUT_ROW = "i"
    val bound = org.apache.spark.sql.catalyst.expressions.BindReferences.bindReference(id, output)
    val code = bound.genCode(ctx)
    UnsafeProjection.create(Seq(id), output) // it compiles
    CodeFormatter.stripExtraNewLinesAndComments(code.code.toString) + code.value
  }

  test(
    "without the setting the generated code is the same as without any counting, and with it one line longer"
  ) {
    val plans = rows.queryExecution.analyzed.output
    TaskContext.setTaskContext(TaskContext.empty()) // keys are counted in tasks only
    val codes =
      try
        Seq(None, Some(new KeyCounts(64)), Some(new KeyCounts(64, values = true)))
          .map(generated(plans.take(2), plans, _))
      finally TaskContext.unset()
    val Seq(plain, counting, naming) = codes: @unchecked
    assert(counting == plain && !plain.contains("keyText"))
    assert(naming.contains(".wanted()") && naming.linesIterator.size > plain.linesIterator.size)
  }

  test("keys that give another value each time are not evaluated a second time") {
    val random = rows.select(rand().as("r")).queryExecution.analyzed.expressions.flatMap(_.children)
    TaskContext.setTaskContext(TaskContext.empty())
    try {
      val counts = Some(new KeyCounts(64, values = true))
      val shared = SharedTable(Table.empty(n), spark.sparkContext)
      assert(random.exists(!_.deterministic))
      assert(
        new RoutedPartitioning(random, n, shared, None, counts).partitionIdExpression.isInstanceOf[Route]
      )
    } finally TaskContext.unset()
  }

  test("a query's metrics are in Spark's own system while it runs, with its swap, and not after") {
    val states = Operator.named("count")
    def shown: Map[String, Any] = {
      SparkPrivate.drainListeners(spark.sparkContext)
      val sources = SparkEnv.get.metricsSystem.getSourcesByName("plugin." + classOf[SkewlessPlugin].getName)
      sources.flatMap(_.metricRegistry.getGauges.asScala.view.mapValues(_.getValue)).toMap ++
        sources.flatMap(_.metricRegistry.getCounters.asScala.view.mapValues(_.getCount))
    }
    withRun(states.query, states.mode, ours) { run =>
      val query = run.start()
      val name = s"query.${query.id}"
      input(3).zipWithIndex.foreach { case (rows, i) =>
        if (i == 2) Queries.publish(query, table(hashes(input(3), "k"), 1), limits)
        run.stream.addData(rows)
        query.processAllAvailable()
      }
      val swap = { SparkPrivate.drainListeners(spark.sparkContext); Queries.swaps(query).head }
      val found = shown
      assert(found(s"$name.epoch") == 1 && found(s"$name.entries") == table(hashes(input(3), "k"), 1).size)
      assert(found(s"$name.swaps") == 1 && found(s"$name.movedBytes") == swap.bytes && swap.bytes > 0)
      assert(found(s"$name.exportMs") == swap.exportMs)
      query.stop()
      assert(!shown.keys.exists(_.startsWith(name)))
      Queries.latest(query)
      assert(!shown.keys.exists(_.startsWith(name)), "asking about an ended query brings nothing back")
    }
  }
}
