package io.skewless.bench

import java.nio.ByteBuffer
import java.nio.file.{Files, Path}
import java.util.concurrent.TimeUnit

import scala.util.{Random, Using}

import org.apache.spark.sql.catalyst.expressions.{BoundReference, Murmur3Hash, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.LongType
import org.openjdk.jmh.annotations._
import org.rocksdb._

/**
 * What finding the rows that move would cost, a store of 125,000 keys with 500 bytes each, 1 % of which move;
 * and what keeping an index costs a batch that puts 12,500 rows. On RocksDB alone, with Spark's options: `sbt
 * 'benchJvm/Jmh/run ScanBench'`.
 *
 * The scans build on each other: each benchmark does what the one before it does, and one thing more. Notes
 * in docs/design/0003.
 */
@State(Scope.Thread)
@BenchmarkMode(Array(Mode.AverageTime))
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 3, time = 2)
@Measurement(iterations = 5, time = 2)
@Fork(value = 1, jvmArgsAppend = Array("--add-opens=java.base/java.nio=ALL-UNNAMED"))
class ScanBench {
  private val Keys = 125000
  private val Moved = Keys / 100
  private val Put = Keys / 10

  private var folder: Path = _
  private var store, indexed: RocksDB = _
  private var options: Options = _
  private var quiet: ReadOptions = _
  private var unlogged: WriteOptions = _
  private val random = new Random(7)
  private val value = new Array[Byte](520)
  private val hash =
    UnsafeProjection.create(Seq(new Murmur3Hash(Seq(BoundReference(0, LongType, nullable = true)))))
  private val row = new UnsafeRow(1)
  private val buffer = ByteBuffer.allocateDirect(64)
  private var fresh = Keys.toLong

  @Setup def setUp(): Unit = {
    RocksDB.loadLibrary()
    quiet = new ReadOptions().setFillCache(false)
    unlogged = new WriteOptions().setDisableWAL(true)
    folder = Files.createTempDirectory("skewless-scan-bench")
    val format = new BlockBasedTableConfig()
      .setBlockSize(4 * 1024)
      .setFilterPolicy(new BloomFilter())
      .setFormatVersion(5)
    options = new Options()
      .setCreateIfMissing(true)
      .setCompressionType(CompressionType.LZ4_COMPRESSION)
      .setTableFormatConfig(format)
    store = RocksDB.open(options, folder.resolve("plain").toString)
    indexed = RocksDB.open(options, folder.resolve("index").toString)
    random.nextBytes(value)
    (0L until Keys.toLong).foreach { k =>
      store.put(unlogged, key(k), value)
      indexed.put(unlogged, entry(k), Array.emptyByteArray)
    }
    Seq(store, indexed).foreach(_.flush(new FlushOptions().setWaitForFlush(true)))
  }

  @TearDown def tearDown(): Unit = {
    Seq(store, indexed).foreach(_.close())
    Using.resource(Files.walk(folder))(
      _.sorted(java.util.Comparator.reverseOrder[Path]()).forEach(Files.delete(_))
    )
  }

  /** As Spark's encoder has it: a version byte, then the row. */
  private def key(k: Long): Array[Byte] =
    ByteBuffer.allocate(17).put(0: Byte).putLong(0).putLong(java.lang.Long.reverseBytes(k)).array()

  private def hashOf(key: Array[Byte]): Int = {
    row.pointTo(key, org.apache.spark.unsafe.Platform.BYTE_ARRAY_OFFSET + 1, key.length - 1)
    hash(row).getInt(0)
  }

  private def entry(k: Long): Array[Byte] = ByteBuffer.allocate(21).putInt(hashOf(key(k))).put(key(k)).array()

  private def scan(each: RocksIterator => Int): Int = Using.resource(store.newIterator(quiet)) { iterator =>
    var sum = 0
    iterator.seekToFirst()
    while (iterator.isValid) {
      sum += each(iterator)
      iterator.next()
    }
    sum
  }

  @Benchmark def step(): Int = scan(_ => 1)
  @Benchmark def stepAndKeyInPlace(): Int = scan { iterator => buffer.clear(); iterator.key(buffer) }
  @Benchmark def stepAndKey(): Int = scan(_.key().length)
  @Benchmark def stepKeyAndHash(): Int = scan(iterator => hashOf(iterator.key()))
  @Benchmark def stepKeyHashAndValue(): Int =
    scan(iterator => hashOf(iterator.key()) + iterator.value().length)

  /** Each moved hash is sought in the index, its key read, and the row fetched by it. */
  @Benchmark def byIndex(): Int = Using.resource(indexed.newIterator(quiet)) { iterator =>
    var (found, i) = (0, 0)
    while (i < Moved) {
      val wanted = entry(random.nextInt(Keys).toLong)
      iterator.seek(java.util.Arrays.copyOf(wanted, 4))
      val at = iterator.key()
      found += store.get(java.util.Arrays.copyOfRange(at, 4, at.length)).length
      i += 1
    }
    found
  }

  /**
   * A batch's puts of keys that are there, as Spark makes them: it looks whether the key is new, to count
   * keys.
   */
  @Benchmark def putKnown(): Int = puts(_ => random.nextInt(Keys).toLong, index = false)
  @Benchmark def putKnownIndexed(): Int = puts(_ => random.nextInt(Keys).toLong, index = true)
  @Benchmark def putNew(): Int = puts(_ => { fresh += 1; fresh }, index = false)
  @Benchmark def putNewIndexed(): Int = puts(_ => { fresh += 1; fresh }, index = true)

  private def puts(next: Int => Long, index: Boolean): Int = {
    var (added, i) = (0, 0)
    while (i < Put) {
      val k = next(i)
      if (store.get(key(k)) == null) {
        added += 1
        if (index) indexed.put(unlogged, entry(k), Array.emptyByteArray)
      }
      store.put(unlogged, key(k), value)
      i += 1
    }
    added
  }
}
