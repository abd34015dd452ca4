package org.apache.spark.sql.skewless

import java.nio.file.{Files, Path, StandardCopyOption}
import java.nio.file.attribute.FileTime

import scala.jdk.CollectionConverters._
import scala.util.Using
import scala.util.control.NonFatal

import io.skewless.{SkewlessConf, SkewlessPlugin, TestSpark}
import io.skewless.table.{Split, Table}
import org.apache.spark.SparkConf
import org.apache.spark.sql.{Dataset, Row}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.functions._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.skewless.route.Routing
import org.apache.spark.sql.streaming.Trigger

/**
 * A query that several processes can run one after the other on one checkpoint: input is one file per batch,
 * the rows of a batch go to a file, and tables are published while the batch before them runs. Everything is
 * on `halt:`.
 *
 * @param inFiles whether state travels in scratch files, however little it is
 */
final class FileRun(dir: Path, operator: Operator, format: String, inFiles: Boolean = false) {
  private val n = 4

  def writeInput(batches: Seq[Seq[Event]]): Unit = {
    Files.createDirectories(dir.resolve("in"))
    batches.zipWithIndex.foreach { case (rows, i) =>
      val lines = rows.map { e =>
        val key = Option(e.k).fold("")(k => s""""k":"$k",""")
        s"""{$key"g":${e.g},"v":${e.v},"t":${e.t}}"""
      }
      val file = Files.write(dir.resolve(f"in/$i%05d.json"), lines.asJava)
      Files.setLastModifiedTime(
        file,
        FileTime.fromMillis(1700000000000L + i * 1000)
      ) // the order in which Spark reads them
    }
  }

  /** Runs all that is left of the input, with swaps before batches 2, 3 and 4, and 7 if there is one. */
  def run(spark: SparkSession): Unit =
    if (inFiles) TestSpark.withFiles(spark.sparkContext)(runAsSet(spark)) else runAsSet(spark)

  private def runAsSet(spark: SparkSession): Unit = {
    val confs = operator.conf ++ Seq(
      SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> format,
      SQLConf.STATE_STORE_PROVIDER_CLASS.key -> classOf[SkewlessStateStoreProvider].getName,
      SQLConf.MIN_BATCHES_TO_RETAIN.key -> "2",
      SQLConf.SHUFFLE_PARTITIONS.key -> n.toString
    )
    val before = confs.map { case (key, _) => key -> spark.conf.getOption(key) }
    confs.foreach { case (key, value) => spark.conf.set(key, value) }
    try {
      val source =
        spark.readStream.schema(FileRun.Schema).option("maxFilesPerTrigger", 1).json(s"halt:$dir/in")
      val tables = swaps(spark)
      operator
        .query(source.withColumn("t", timestamp_seconds(col("t"))))
        .writeStream
        .queryName(dir.getFileName.toString)
        .option("checkpointLocation", s"halt:$dir/checkpoint")
        .outputMode(operator.mode)
        .trigger(Trigger.AvailableNow())
        .foreachBatch { (batch: Dataset[Row], id: Long) =>
          write(id, batch.collect().map(_.toString).sorted.toSeq)
          tables
            .get(id + 1)
            .filter(_ => !Files.exists(dir.resolve(s"checkpoint/_skewless/pins/${id + 1}")))
            .foreach { table =>
              val query = spark.streams.active.find(_.name == dir.getFileName.toString).get
              Queries.publish(query, table, SkewlessConf(new SparkConf(false)))
            }
        }
        .start()
        .awaitTermination()
    } finally
      before.foreach { case (key, value) => value.fold(spark.conf.unset(key))(spark.conf.set(key, _)) }
  }

  private def swaps(spark: SparkSession): Map[Long, Table] = {
    val hashes = spark.read
      .schema(FileRun.Schema)
      .json(s"$dir/in") // not what a driver dies of
      .withColumn("t", timestamp_seconds(col("t")))
      .withColumn("w", window(col("t"), "20 seconds"))
      .select(Routing.keyHash(spark, operator.keys.map(col)))
      .distinct()
      .collect()
      .map(_.getInt(0))
    def table(by: Int) =
      Table.of(
        n,
        hashes
          .filter(h => Math.floorMod(h / 7, 3) != by % 3)
          .map(h => h -> Split.one(Math.floorMod(h + by, n)))
          .toMap ++ split(spark, by)
      )
    Map(2L -> table(1), 3L -> table(2), 4L -> table(5), 7L -> table(1))
  }

  /** The split of the hottest key, where the operator has one. */
  private def split(spark: SparkSession, by: Int): Option[(Int, Split)] = operator match {
    case join: SplitJoin =>
      val hash = spark.range(1).select(Routing.keyHash(spark, Seq(lit("key-0")))).head().getInt(0)
      Some(hash -> join.split(by))
    case _ => None
  }

  /**
   * A batch that runs twice writes its rows twice; the last stands, as in any sink that is idempotent by
   * batch.
   */
  private def write(batch: Long, rows: Seq[String]): Unit = {
    Files.createDirectories(dir.resolve("out"))
    val temporary = Files.write(dir.resolve(s"out/.$batch"), rows.asJava)
    Files.move(temporary, dir.resolve(s"out/$batch"), StandardCopyOption.REPLACE_EXISTING)
  }

  /** The rows of each batch, sorted. */
  def rows: Map[Long, Seq[String]] = Using.resource(Files.list(dir.resolve("out"))) {
    _.iterator.asScala.map(f => f.getFileName.toString.toLong -> Files.readAllLines(f).asScala.toSeq).toMap
  }
}

object FileRun {
  val Main: String = "org.apache.spark.sql.skewless.FileRun"
  private val Schema = "k STRING, g INT, v BIGINT, t BIGINT"

  /**
   * A driver of its own, in which one query after the other dies and which is then halted. Its argument is a
   * file with a line for each: folder, operator, checkpoint format, where to die, whether state travels in
   * files.
   */
  def main(args: Array[String]): Unit = {
    val spark = SparkSession
      .builder()
      .master("local[2]")
      .config("spark.plugins", classOf[SkewlessPlugin].getName)
      .config("spark.sql.extensions", classOf[SkewlessExtensions].getName)
      .config("spark.hadoop.fs.halt.impl", classOf[HaltingFileSystem].getName)
      .config(QuickLocalFileSystem.conf)
      .config("spark.ui.enabled", "false")
      .config("spark.sql.session.timeZone", "UTC")
      .config("spark.sql.autoBroadcastJoinThreshold", "-1")
      .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
      .config("spark.sql.warehouse.dir", args(0) + "-warehouse")
      .getOrCreate()
    Files.readAllLines(Path.of(args(0))).asScala.map(_.split("\t")).foreach { line =>
      val dir = Path.of(line(0))
      HaltingFileSystem.die(dir, HaltPoint(line(3), line(5), line(4).toInt))
      try new FileRun(dir, Operator.named(line(1)), line(2), line(6).toBoolean).run(spark)
      catch { case NonFatal(e) => Files.writeString(dir.resolve("log"), s"$e") }
      StateStore.unloadAll()
    }
    Runtime.getRuntime.halt(42)
  }
}
