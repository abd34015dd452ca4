package io.skewless

import org.apache.spark.SparkConf

/** One typed setting: its key, default, how its text is read, and what the generated page says of it. */
final case class Setting[T](key: String, default: T, range: String, doc: String)(
    val read: String => Option[T]
)

/**
 * The settings `spark.skewless.*`, read once from the SparkConf when the application starts: a `SET` in a
 * shared session cannot change them. An unknown key, a wrong type and a number out of its range are errors,
 * so a typing mistake never passes silently.
 */
final class SkewlessConf(pairs: Map[String, String]) {
  import SkewlessConf._

  private def get[T](setting: Setting[T]): T = pairs.get(setting.key).fold(setting.default) { text =>
    setting.read(text.trim).getOrElse {
      throw SkewlessException.setting(
        s"${setting.key} is \"$text\". It takes ${setting.range}. Correct it, or leave it out for " +
          s"${setting.default}."
      )
    }
  }

  val maxEntries: Int = get(MaxEntries)
  val retainedBatches: Int = get(RetainedBatches)

  /** A power of two, as the sketch wants it. */
  val trackedKeys: Int = Integer.highestOneBit(get(TrackedKeys))

  val keyValues: Boolean = get(KeyValues)

  val adopt: Boolean = get(Adopt)
  val carriedBytes: Int = get(CarriedBytes)

  def checkSize(entries: Int): Unit =
    if (entries > maxEntries)
      throw SkewlessException.table(
        s"the table has $entries entries, ${MaxEntries.key} allows $maxEntries. Keep the hottest keys, or " +
          "raise the setting; the old " +
          "table stays in force."
      )
}

object SkewlessConf {
  private val Prefix = "spark.skewless."

  val MaxEntries: Setting[Int] = count(
    "spark.skewless.table.maxEntries",
    default = 100000,
    from = 0,
    to = 10000000,
    "Most entries that a published table may have. An entry takes 8 bytes in the table's bytes and about " +
      "16 to 32 in each executor."
  )

  val RetainedBatches: Setting[Int] = count(
    "spark.skewless.listener.retainedBatches",
    default = 50,
    from = 1,
    to = 10000,
    "Of how many batches of a query the driver keeps the load per partition."
  )

  val TrackedKeys: Setting[Int] = count(
    "spark.skewless.observe.trackedKeys",
    default = 2048,
    from = 64,
    to = 65536,
    "How many keys the sketch of one map task holds while a loop watches the query; taken down to a power " +
      "of two. A key's rows are " +
      "known to within 3.5 / this number of all rows. A task sends up to 12 bytes a key to the driver."
  )

  val KeyValues: Setting[Boolean] = flag(
    "spark.skewless.observe.keyValues",
    default = false,
    "Whether the values of hot keys, up to 64 characters each, are shown beside their hashes in status, " +
      "report and log lines while a " +
      "loop watches the query. Off, no value leaves its task. On, a task sends the values of the keys that " +
      "stand out in it to the " +
      "driver."
  )

  val Adopt: Setting[Boolean] = flag(
    "spark.skewless.adopt",
    default = false,
    "Whether a stateful query whose checkpoint names Spark's RocksDB provider is taken over at its next " +
      "start. No file is edited: from the second batch of that run on, entries of its offset log name " +
      "Skewless's provider, and a start needs the jar until the query is released. Queries that no table " +
      "can level are left as they are."
  )

  val CarriedBytes: Setting[Int] = count(
    "spark.skewless.moves.carriedBytes",
    default = 512 << 10,
    from = 0,
    to = 16 << 20,
    "Most bytes of one stage's state that travel with Spark's own tasks in a swap, through the driver's " +
      "memory; each partition that gives has an equal part of them. A partition that gives more writes a " +
      "scratch file, which takes longer to make than little state to move. 0: always files. Spark warns of " +
      "tasks over 1000 KiB."
  )

  val All: Seq[Setting[_]] =
    Seq(Adopt, CarriedBytes, KeyValues, MaxEntries, RetainedBatches, TrackedKeys).sortBy(_.key)

  def apply(conf: SparkConf): SkewlessConf = {
    val pairs = conf.getAll.filter(_._1.startsWith(Prefix)).toMap
    pairs.keys.toSeq.sorted.find(key => !All.exists(_.key == key)).foreach { key =>
      throw SkewlessException.setting(
        s"there is no setting $key. The settings are: ${All.map(_.key).mkString(", ")}."
      )
    }
    new SkewlessConf(pairs)
  }

  /** `docs/configuration.md`, whole; a test keeps the file equal to it. */
  def page: String = {
    val rows = All.map(s => s"| `${s.key}` | ${s.default} | ${s.range} | ${s.doc} |")
    (Seq(
      "# Settings",
      "",
      "Generated from `SkewlessConf.scala` by `make docs`; do not edit by hand.",
      "",
      "Set them before the session starts, as any static Spark setting. Unknown `spark.skewless.*` keys " +
        "are refused.",
      "",
      "| setting | default | takes | meaning |",
      "|---|---|---|---|"
    ) ++ rows).mkString("", "\n", "\n")
  }

  private def count(key: String, default: Int, from: Int, to: Int, doc: String): Setting[Int] =
    Setting(key, default, s"a whole number from $from to $to", doc)(text =>
      text.toIntOption.filter(n => n >= from && n <= to)
    )

  private def flag(key: String, default: Boolean, doc: String): Setting[Boolean] =
    Setting(key, default, "true or false", doc)(_.toBooleanOption)
}

/** Writes the settings page: `sbt "jvm/runMain io.skewless.SettingsPage docs/configuration.md"`. */
object SettingsPage {
  def main(args: Array[String]): Unit =
    java.nio.file.Files.writeString(java.nio.file.Path.of(args(0)), SkewlessConf.page)
}
