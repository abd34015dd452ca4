package org.apache.spark.sql.skewless.route

import java.io.{ByteArrayInputStream, PrintWriter}
import java.nio.file.Files
import java.util.zip.{GZIPInputStream, GZIPOutputStream}

import scala.io.Source
import scala.jdk.CollectionConverters._
import scala.util.{Random, Using}

import io.skewless.{Repository, TestSpark}
import io.skewless.table.{SharedTable, Table}
import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.catalyst.{CatalystTypeConverters, InternalRow}
import org.apache.spark.sql.catalyst.expressions.{Attribute, CollationAwareMurmur3Hash, Expression}
import org.apache.spark.sql.catalyst.expressions.{InterpretedUnsafeProjection, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.functions.{col, spark_partition_id}
import org.apache.spark.sql.skewless.RandomRows
import org.apache.spark.sql.types._
import org.scalatest.funsuite.AnyFunSuite

/**
 * Where rows go: exactly where plain Spark puts them without an entry, exactly where the table says with one.
 */
class RouteSuite extends AnyFunSuite with TestSpark {

  private val n = 13
  private val rowsEach = 150

  private val nestedTypes: Seq[DataType] = Seq(
    StructType(Seq(StructField("a", StringType), StructField("b", DecimalType(38, 10)))),
    ArrayType(StringType("UTF8_LCASE")),
    ArrayType(StructType(Seq(StructField("a", DoubleType), StructField("b", ArrayType(BinaryType)))))
  )

  private val keyTypes: Seq[DataType] = RandomRows.AtomicTypes ++ nestedTypes

  /** `id`, and one column of each type. */
  private lazy val data: DataFrame = {
    val random = new Random(41)
    val schema = StructType(StructField("id", LongType) +: keyTypes.zipWithIndex.map { case (t, i) =>
      StructField(s"k$i", t)
    })
    val rows =
      (0 until rowsEach).map(id => Row.fromSeq(id.toLong +: keyTypes.map(RandomRows.value(random, _))))
    spark.createDataFrame(rows.asJava, schema).repartition(3, col("id")).cache()
  }

  private lazy val internalRows: Seq[InternalRow] = data.queryExecution.toRdd.map(_.copy()).collect().toSeq

  private val keys: Seq[(String, Seq[String])] =
    keyTypes.zipWithIndex.map { case (t, i) => t.sql -> Seq(s"k$i") } ++ Seq(
      "string and long" -> Seq("k0", "k1"),
      "long and string" -> Seq("k1", "k0"),
      "the same column twice" -> Seq("k0", "k0"),
      "eight columns" -> (0 until 8).map(i => s"k$i")
    )

  private def placement(df: => DataFrame): Map[Long, Int] = withConf(
    "spark.sql.adaptive.enabled" -> "false"
  ) {
    df.select(col("id"), spark_partition_id()).collect().map(row => row.getLong(0) -> row.getInt(1)).toMap
  }

  private lazy val allHashes: Seq[Row] =
    data
      .select(col("id") +: keys.map { case (_, names) => Routing.keyHash(spark, names.map(col)) }: _*)
      .collect()
      .toSeq

  /** id -> key hash. */
  private def hashes(names: Seq[String]): Map[Long, Int] = {
    val at = 1 + keys.indexWhere(_._2 == names)
    allHashes.map(row => row.getLong(0) -> row.getInt(at)).toMap
  }

  for ((name, names) <- keys) test(s"key $name: an empty table is plain Spark, a full one is obeyed") {
    val columns = names.map(col)
    val plain = placement(data.repartition(n, columns: _*))
    assert(plain.size == rowsEach)
    assert(placement(Routing.repartition(data, n, columns, Some(Table.empty(n)))) == plain)

    val hash = hashes(names)
    assert(plain == hash.view.mapValues(Math.floorMod(_, n)).toMap)
    val moves = Table(n, hash.values.toSet[Int].map(h => h -> Seq(Math.floorMod(h * 31 + 5, n))).toMap)
    assert(
      placement(Routing.repartition(data, n, columns, Some(moves))) == hash.view.mapValues(moves.route).toMap
    )

    val splits =
      Table(n, hash.values.toSet[Int].map(h => h -> (0 until 3).map(i => Math.floorMod(h + 4 * i, n))).toMap)
    val spread = placement(Routing.repartition(data, n, columns, Some(splits)))
    assert(spread.keySet == hash.keySet && spread.forall { case (id, partition) =>
      splits.targets(hash(id)).contains(partition)
    })
  }

  for ((name, names) <- keys)
    test(
      s"key $name: the routed expression equals Spark's own under an empty table, compiled and interpreted"
    ) {
      val output = data.queryExecution.analyzed.output
      val expressions = names.map(key => output.find(_.name == key).get)
      val shared = SharedTable(Table.empty(n), spark.sparkContext)
      val ours = new RoutedPartitioning(expressions, n, shared, None).partitionIdExpression
      val sparks = HashPartitioning(expressions, n).partitionIdExpression
      assert(ours.isInstanceOf[Route] && !sparks.isInstanceOf[Route])
      val Seq(interpreted, compiled) = Seq("NO_CODEGEN", "CODEGEN_ONLY").map { mode =>
        val expected = evaluate(mode, sparks, output, internalRows)
        assert(evaluate(mode, ours, output, internalRows) == expected, mode)
        expected
      }: @unchecked
      // Spark itself leaves the days out of a calendar interval when compiled, and hashes them when not.
      if (name != "INTERVAL") assert(interpreted == compiled)
      assert(interpreted.distinct.size > 1 || name == "VOID")
    }

  private def evaluate(
      mode: String,
      expression: Expression,
      output: Seq[Attribute],
      rows: Seq[InternalRow]
  ): Seq[Int] =
    withConf("spark.sql.codegen.factoryMode" -> mode) {
      val projection = UnsafeProjection.create(Seq(expression), output)
      assert(projection.isInstanceOf[InterpretedUnsafeProjection] == (mode == "NO_CODEGEN"))
      rows.map(row => projection(row).getInt(0))
    }

  test("null, every NaN and both zeros are one key each") {
    val ids = data.select(col("id"), col("k6")).collect()
    val hash = hashes(Seq("k6"))
    def hashesOf(wanted: Row => Boolean): Set[Int] = ids.filter(wanted).map(row => hash(row.getLong(0))).toSet
    assert(hashesOf(_.isNullAt(1)) == Set(42)) // Murmur3's seed: null leaves it as it is
    assert(hashesOf(row => !row.isNullAt(1) && row.getDouble(1).isNaN).size == 1)
    assert(hashesOf(row => !row.isNullAt(1) && row.getDouble(1) == 0.0).size == 1)
  }

  test("strings that a collation calls equal are one key") {
    val rows = Seq(Row(0L, "straße", "ABC"), Row(1L, "STRAßE", "abc"), Row(2L, "other", "xyz"))
    val schema =
      new StructType()
        .add("id", LongType)
        .add("lower", StringType("UTF8_LCASE"))
        .add("unicode", StringType("UNICODE_CI"))
    val df = spark.createDataFrame(rows.asJava, schema)
    Seq("lower", "unicode").foreach { name =>
      val hash = df.select(Routing.keyHash(spark, Seq(col(name)))).collect().map(_.getInt(0))
      assert(hash(0) == hash(1) && hash(0) != hash(2))
      val placed =
        placement(
          Routing.repartition(
            df,
            n,
            Seq(col(name)),
            Some(Table(n, Map(hash(0) -> Seq(11), hash(2) -> Seq(12))))
          )
        )
      assert(placed == Map(0L -> 11, 1L -> 11, 2L -> 12))
    }
  }

  test("the shuffle writer runs the compiled expression, and a run without code generation agrees") {
    val names = Seq("k0", "k1")
    val columns = names.map(col)
    val table = Table(
      n,
      hashes(names).values
        .toSet[Int]
        .zipWithIndex
        .map { case (h, i) =>
          h -> (0 to i % 3).map(j => Math.floorMod(h + 5 * j, n))
        }
        .toMap
    )
    assert(table.hasSplits)
    val placed = Seq("CODEGEN_ONLY", "NO_CODEGEN").map { mode =>
      withConf(
        "spark.sql.codegen.factoryMode" -> mode,
        "spark.sql.codegen.wholeStage" -> (mode == "CODEGEN_ONLY").toString
      ) {
        placement(Routing.repartition(data, n, columns, Some(table)))
      }
    }
    assert(placed(0) == placed(1) && placed(0).size == rowsEach)
  }

  test("a split key routed outside a task is refused, not guessed") {
    val output = data.queryExecution.analyzed.output
    val split = SharedTable(Table(n, Map(1 -> Seq(0, 1))), spark.sparkContext)
    refusal("TableError")(new RoutedPartitioning(output.take(1), n, split, None).partitionIdExpression)
  }

  test("a map-typed key, a missing column, no column and a wrong number of partitions are refused") {
    val maps = spark.sql(
      "select map('a', 1) m, array(map('a', 1)) am, named_struct('m', map(1, 2)) sm, parse_json('1') v, 1 x"
    )
    Seq("m", "am", "sm", "v").foreach { name =>
      assert(
        refusal("ColumnError")(Routing.repartition(maps, n, Seq(col(name)), None)).getMessage
          .contains("which Spark cannot hash")
      )
    }
    assert(refusal("ColumnError")(Routing.repartition(maps, n, Seq(col("y")), None)).getMessage.contains("y"))
    refusal("ColumnError")(Routing.repartition(maps, n, Nil, None))
    refusal("TableError")(Routing.repartition(maps, n, Seq(col("x")), Some(Table.empty(n + 1))))
    Seq(0, -1, Table.MaxPartitions + 1).foreach(bad =>
      refusal("SettingError")(Routing.repartition(maps, bad, Seq(col("x")), None))
    )
  }

  // -- the golden file
  // -------------------------------------------------------------------------------------------------

  private val goldenPartitions = 37
  private val golden = Repository.file("tests/vectors/golden_routes.csv.gz")

  /** A table fixed by rule: a third of all hashes move, a third are split by five, a third have no entry. */
  private def goldenTable(hashes: Iterable[Int]): Table = Table(
    goldenPartitions,
    hashes
      .toSet[Int]
      .filter(Math.floorMod(_, 3) < 2)
      .map { hash =>
        val first = Math.floorMod(hash.toLong * 31 + 7, goldenPartitions.toLong).toInt
        hash -> (if (Math.floorMod(hash, 3) == 0) Seq(first)
                 else (0 until 5).map(i => (first + 7 * i) % goldenPartitions))
      }
      .toMap
  )

  /**
   * (hash, plain partition, route for mapper 2 of 3, where a row's content decides) of each row, all
   * compiled.
   */
  private def computed(): Seq[(Int, Int, Int)] = {
    val random = new Random(20240607)
    (1 to 100).flatMap { _ =>
      val schema = RandomRows.schema(random)
      val converter = CatalystTypeConverters.createToCatalystConverter(schema)
      val rows = Seq.fill(100)(RandomRows.row(random, schema)).map(converter(_).asInstanceOf[InternalRow])
      val output = toAttributes(schema)
      val hash = new CollationAwareMurmur3Hash(output)
      val hashOf = UnsafeProjection.create(Seq(hash), output)
      val table = goldenTable(rows.map(hashOf(_).getInt(0)))
      val route = Route(hash, hash, new Router(table, 2, 3, byContent = true, sampler = null))
      val all =
        UnsafeProjection.create(
          Seq(hash, HashPartitioning(output, goldenPartitions).partitionIdExpression, route),
          output
        )
      rows.map { row =>
        val ids = all(row)
        (ids.getInt(0), ids.getInt(1), ids.getInt(2))
      }
    }
  }

  test("10,000 random rows of random schemas go where the golden file says") {
    val rows = withConf("spark.sql.codegen.factoryMode" -> "CODEGEN_ONLY")(computed())
    assert(rows.size == 10000 && rows.map(_._1).distinct.size > 5000)
    assert(rows.count { case (_, plain, route) => plain != route } > 5000)
    if (sys.props.contains("skewless.writeGolden"))
      Using.resource(new PrintWriter(new GZIPOutputStream(Files.newOutputStream(golden)))) { out =>
        rows.foreach { case (hash, plain, route) => out.print(s"$hash,$plain,$route\n") }
      }
    val recorded =
      Using.resource(
        Source.fromInputStream(new GZIPInputStream(new ByteArrayInputStream(Files.readAllBytes(golden))))
      ) {
        _.getLines().map(_.split(",").map(_.toInt)).map(fields => (fields(0), fields(1), fields(2))).toSeq
      }
    assert(recorded.size == rows.size)
    recorded.zip(rows).zipWithIndex.foreach { case ((expected, actual), i) =>
      assert(actual == expected, s"row $i")
    }
  }
}
