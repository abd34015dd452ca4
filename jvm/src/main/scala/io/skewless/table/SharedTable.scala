package io.skewless.table

import java.util.{LinkedHashMap => JLinkedHashMap, Map => JMap}

import org.apache.spark.SparkContext
import org.apache.spark.broadcast.Broadcast

/**
 * A table on its way from the driver into tasks. A small one travels inside the task; a larger one as one
 * broadcast an executor, decoded there once. Either way a task sees the table its plan was made with,
 * whatever has been published since.
 */
final class SharedTable private (
    @transient private val onDriver: Table,
    small: Option[Table],
    large: Option[Broadcast[Array[Byte]]],
    val digest: String
) extends Serializable {

  def table: Table = Option(onDriver).orElse(small).getOrElse(SharedTable.decode(digest, large.get))

  override def equals(other: Any): Boolean = other match {
    case that: SharedTable => digest == that.digest
    case _ => false
  }

  override def hashCode: Int = digest.hashCode
}

object SharedTable {
  private val InlineBytes = 32 << 10
  private val Remembered = 8

  /** Driver: what was shared last, so that a table planned again is not sent again. */
  private val sent = newest[(SparkContext, Table), SharedTable]

  /** Executor: what was decoded last, shared by all its tasks. */
  private val decoded = newest[String, Table]

  def apply(table: Table, context: SparkContext): SharedTable = sent.synchronized {
    sent.computeIfAbsent(
      (context, table),
      _ => {
        val bytes = TableCodec.encode(table)
        val digest = TableCodec.digest(bytes)
        if (bytes.length <= InlineBytes) new SharedTable(table, Some(table), None, digest)
        else new SharedTable(table, None, Some(context.broadcast(bytes)), digest)
      }
    )
  }

  /** Called when the application ends: nothing of it may stay behind in this JVM. */
  def forget(): Unit = sent.synchronized(sent.clear())

  private def decode(digest: String, bytes: Broadcast[Array[Byte]]): Table = decoded.synchronized {
    decoded.computeIfAbsent(digest, _ => TableCodec.decode(bytes.value))
  }

  private def newest[K, V]: JLinkedHashMap[K, V] = new JLinkedHashMap[K, V](Remembered, 0.75f, true) {
    override def removeEldestEntry(eldest: JMap.Entry[K, V]): Boolean = size > Remembered
  }
}
