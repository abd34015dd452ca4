package org.apache.spark.sql.skewless

import java.nio.file.{Files, Path, StandardCopyOption}

import scala.jdk.CollectionConverters._

import io.skewless.{SkewlessConf, SkewlessPlugin, Table}
import org.apache.spark.SparkConf
import org.apache.spark.sql.{Dataset, Row}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.functions._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.Trigger

/**
 * A query that several processes can run one after the other on one checkpoint: input is a file a batch, the rows of a batch go to a
 * file, and tables are published while the batch before them runs. Everything is on `halt:`.
 */
final class FileRun(dir: Path, operator: Operator, format: String) {
  private val n = 4

  def writeInput(batches: Seq[Seq[Event]]): Unit = {
    Files.createDirectories(dir.resolve("in"))
    batches.zipWithIndex.foreach { case (rows, i) =>
      val lines = rows.map { e =>
        val key = Option(e.k).fold("")(k => s""""k":"$k",""")
        s"""{$key"g":${e.g},"v":${e.v},"t":${e.t}}"""
      }
      Files.write(dir.resolve(f"in/$i%05d.json"), lines.asJava)
    }
  }

  /** Runs all that is left of the input. With tables: swaps before batches 2, 3 and 4, and 7 if there is one. */
  def run(spark: SparkSession, swap: Boolean): Unit = {
    val confs = operator.conf ++ Seq(
      SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> format,
      SQLConf.STATE_STORE_PROVIDER_CLASS.key -> (if (swap) classOf[SkewlessStateStoreProvider].getName else FileRun.Stock),
      SQLConf.MIN_BATCHES_TO_RETAIN.key -> "2",
      SQLConf.SHUFFLE_PARTITIONS.key -> n.toString
    )
    val before = confs.map { case (key, _) => key -> spark.conf.getOption(key) }
    confs.foreach { case (key, value) => spark.conf.set(key, value) }
    try {
      val source = spark.readStream.schema(FileRun.Schema).option("maxFilesPerTrigger", 1).json(s"halt:$dir/in")
      val tables = if (swap) swaps(spark) else Map.empty[Long, Table]
      operator
        .query(source.withColumn("t", timestamp_seconds(col("t"))))
        .writeStream
        .queryName(dir.getFileName.toString)
        .option("checkpointLocation", s"halt:$dir/${if (swap) "checkpoint" else "plain"}")
        .outputMode(operator.mode)
        .trigger(Trigger.AvailableNow())
        .foreachBatch { (batch: Dataset[Row], id: Long) =>
          write(id, batch.collect().map(_.toString).sorted.toSeq, if (swap) "out" else "expected")
          tables.get(id + 1).filter(_ => !Files.exists(dir.resolve(s"checkpoint/_skewless/pins/${id + 1}"))).foreach { table =>
            val query = spark.streams.active.find(_.name == dir.getFileName.toString).get
            RunningQueries.publish(query, table, SkewlessConf(new SparkConf(false)))
          }
        }
        .start()
        .awaitTermination()
    } finally before.foreach { case (key, value) => value.fold(spark.conf.unset(key))(spark.conf.set(key, _)) }
  }

  private def swaps(spark: SparkSession): Map[Long, Table] = {
    val hashes = spark.read
      .schema(FileRun.Schema)
      .json(s"halt:$dir/in")
      .withColumn("t", timestamp_seconds(col("t")))
      .withColumn("w", window(col("t"), "20 seconds"))
      .select(Routing.keyHash(spark, operator.keys.map(col)))
      .distinct()
      .collect()
      .map(_.getInt(0))
    def table(by: Int) =
      Table(n, hashes.filter(h => Math.floorMod(h / 7, 3) != by % 3).map(h => h -> Seq(Math.floorMod(h + by, n))).toMap)
    Map(2L -> table(1), 3L -> table(2), 4L -> table(5), 7L -> table(1))
  }

  /** A batch that runs twice writes its rows twice; the last stands, as in any sink that is idempotent by batch. */
  private def write(batch: Long, rows: Seq[String], folder: String): Unit = {
    Files.createDirectories(dir.resolve(folder))
    val temporary = Files.write(dir.resolve(s"$folder/.$batch"), rows.asJava)
    Files.move(temporary, dir.resolve(s"$folder/$batch"), StandardCopyOption.REPLACE_EXISTING)
  }

  def rows(folder: String): Map[String, Seq[String]] =
    Files.list(dir.resolve(folder)).iterator.asScala.map(f => f.getFileName.toString -> Files.readAllLines(f).asScala.toSeq).toMap
}

object FileRun {
  val Stock = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  private val Schema = "k STRING, g INT, v BIGINT, t BIGINT"

  /** A driver of its own: folder, operator, checkpoint format. Dies where -Dskewless.halt says. */
  def main(args: Array[String]): Unit = {
    val spark = SparkSession
      .builder()
      .master("local[2]")
      .config("spark.plugins", classOf[SkewlessPlugin].getName)
      .config("spark.sql.extensions", classOf[SkewlessExtensions].getName)
      .config("spark.hadoop.fs.halt.impl", classOf[HaltingFileSystem].getName)
      .config("spark.ui.enabled", "false")
      .config("spark.sql.session.timeZone", "UTC")
      .config("spark.sql.autoBroadcastJoinThreshold", "-1")
      .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
      .config("spark.sql.warehouse.dir", args(0) + "/warehouse")
      .getOrCreate()
    new FileRun(Path.of(args(0)), Operator.named(args(1)), args(2)).run(spark, swap = true)
    spark.stop()
  }
}
