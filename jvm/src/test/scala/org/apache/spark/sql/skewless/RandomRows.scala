package org.apache.spark.sql.skewless

import java.math.{BigDecimal => JBigDecimal, BigInteger}
import java.time.{Duration, Instant, LocalDate, LocalDateTime, Period, ZoneOffset}

import scala.util.Random

import org.apache.spark.sql.Row
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.CalendarInterval

/**
 * Random schemas and rows from a seed, over every type that can be a key. The golden file hangs on it: add
 * types at the end only.
 */
private[skewless] object RandomRows {

  val AtomicTypes: IndexedSeq[DataType] = IndexedSeq(
    StringType,
    LongType,
    IntegerType,
    ShortType,
    ByteType,
    BooleanType,
    DoubleType,
    FloatType,
    DecimalType(18, 4),
    DecimalType(19, 4),
    DecimalType(38, 10),
    DateType,
    TimestampType,
    TimestampNTZType,
    BinaryType,
    YearMonthIntervalType(),
    DayTimeIntervalType(),
    CalendarIntervalType,
    StringType("UTF8_LCASE"),
    StringType("UNICODE_CI"),
    NullType
  )

  def dataType(random: Random, depth: Int = 2): DataType = random.nextInt(if (depth == 0) 1 else 6) match {
    case 0 if depth > 0 => ArrayType(dataType(random, depth - 1))
    case 1 => StructType((0 to random.nextInt(3)).map(i => StructField(s"f$i", dataType(random, depth - 1))))
    case _ => AtomicTypes(random.nextInt(AtomicTypes.length))
  }

  def schema(random: Random): StructType =
    StructType((0 to random.nextInt(3)).map(i => StructField(s"c$i", dataType(random))))

  def row(random: Random, schema: StructType): Row =
    Row.fromSeq(schema.map(field => value(random, field.dataType)))

  /** Null one time in ten; edges as often as ordinary values. */
  def value(random: Random, dataType: DataType): Any =
    if (random.nextInt(10) == 0) null else notNull(random, dataType)

  private def notNull(random: Random, dataType: DataType): Any = dataType match {
    case _: StringType =>
      pick(random, Seq("", "a", "A", "straße", "STRASSE", "\u0000", "é", "e\u0301", "\uD83D\uDE00", "a "))(
        text(random)
      )
    case LongType => pick(random, Seq(0L, -1L, Long.MinValue, Long.MaxValue))(random.nextLong())
    case IntegerType => pick(random, Seq(0, -1, Int.MinValue, Int.MaxValue))(random.nextInt())
    case ShortType => random.nextInt().toShort
    case ByteType => random.nextInt().toByte
    case BooleanType => random.nextBoolean()
    case DoubleType => pick(random, Doubles)(random.nextGaussian())
    case FloatType => pick(random, Floats)(random.nextGaussian().toFloat)
    case d: DecimalType =>
      new JBigDecimal(new BigInteger(BigInt(10).pow(d.precision - 1).bitLength - 1, random.self), d.scale)
        .negate()
    case DateType => LocalDate.ofEpochDay(random.nextInt(2000000) - 800000L)
    case TimestampType => Instant.ofEpochSecond(random.nextInt() * 20L, random.nextInt(1000000) * 1000L)
    case TimestampNTZType =>
      LocalDateTime.ofEpochSecond(random.nextInt() * 20L, random.nextInt(1000000) * 1000, ZoneOffset.UTC)
    case BinaryType => random.nextBytes(random.nextInt(12))
    case _: YearMonthIntervalType => Period.ofMonths(random.nextInt(200000) - 100000).normalized()
    case _: DayTimeIntervalType =>
      Duration.ofSeconds(random.nextInt().toLong, random.nextInt(1000000) * 1000L)
    case CalendarIntervalType =>
      new CalendarInterval(random.nextInt(99), random.nextInt(99), random.nextInt().toLong)
    case NullType => null
    case ArrayType(element, _) => Seq.fill(random.nextInt(4))(value(random, element))
    case struct: StructType => row(random, struct)
    case other => throw new IllegalArgumentException(s"no random values of type $other")
  }

  /** NaN of several bit patterns, both zeros, both infinities. */
  val Doubles: Seq[Double] =
    Seq(0x7ff8000000000000L, 0x7ff8000000000001L, 0xfff8000000000000L, 0x7ff0000000000001L)
      .map(java.lang.Double.longBitsToDouble) ++ Seq(
      0.0,
      -0.0,
      Double.PositiveInfinity,
      Double.NegativeInfinity,
      Double.MinPositiveValue
    )

  val Floats: Seq[Float] = Seq(0x7fc00000, 0x7fc00001, 0xffc00000)
    .map(java.lang.Float.intBitsToFloat) ++ Seq(0.0f, -0.0f, Float.PositiveInfinity, Float.MinPositiveValue)

  private def pick[T](random: Random, edges: Seq[T])(ordinary: => T): T =
    if (random.nextBoolean()) edges(random.nextInt(edges.length)) else ordinary

  private def text(random: Random): String = Seq.fill(random.nextInt(12))(random.nextPrintableChar()).mkString
}
