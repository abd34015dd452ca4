// In Spark's package because physical nodes are Spark-private.
package org.apache.spark.sql.skewless.split

import io.skewless.observe.{KeyCounts, KeySampler}
import io.skewless.table.{Probe, SharedTable, Side, Table}
import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, Literal, UnsafeProjection}
import org.apache.spark.sql.catalyst.expressions.BindReferences.bindReferences
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/**
 * Stands under the exchange of one side of a join, in batches whose table has splits: emits each row once for
 * each partition that it goes to, and tells the shuffle writer which through `SpreadCursor`.
 *
 * @param hash    Spark's own key hash
 * @param keys    what is hashed, shown to whoever samples values
 * @param content a hash of the row that may decide, or None where a second attempt might see other rows
 * @param counts  where the map tasks count their rows by key, for the loop; copies do not count
 */
private[skewless] case class SpreadExec(
    hash: Expression,
    keys: Seq[Expression],
    table: SharedTable,
    side: Side,
    content: Option[Expression],
    @transient counts: Option[KeyCounts],
    child: SparkPlan
) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: SparkPlan): SpreadExec = copy(child = newChild)

  override protected def doExecute(): RDD[InternalRow] = {
    val (shared, of, tally, columns) = (table, side, counts, child.output)
    val asked = Seq(hash, content.getOrElse(Literal(0)))
    val (byContent, shown) = (content.isDefined, keys.filter(_.deterministic))
    child.execute().mapPartitionsInternal { rows =>
      val sampler = tally.flatMap(counts => Option(counts.sampler()))
      val text = sampler.flatMap(s => Option(s.values)).filter(_ => shown.nonEmpty).map { values =>
        new KeyText(bindReferences(shown, columns), values)
      }
      val spread = new Spread(shared.table, of, byContent, TaskContext.get())
      new SpreadRows(rows, UnsafeProjection.create(asked, columns), spread, sampler.orNull, text.orNull)
    }
  }
}

/** To which partitions a row goes; lives in one map task. */
private[skewless] final class Spread(table: Table, side: Side, byContent: Boolean, task: TaskContext) {
  private val (mapPartition, mappers) = (task.partitionId(), task.numPartitions())

  /** The targets of each split by the row's choice. */
  private val cells: Array[Array[Array[Int]]] = Array.tabulate(table.splits) { i =>
    val split = table.splitAt(i)
    Array.tabulate(split.width(side))(split.cells(side, _).toArray)
  }

  /**
   * A row's content chooses alone where it may: another run of the batch, with other mappers, then writes it
   * to the same place. Else mappers take turns.
   */
  def apply(code: Int, hash: Int, content: Int): Array[Int] = {
    val choices = cells(Probe.SplitBase - code)
    if (choices.length == 1) choices(0)
    else if (byContent) choices(Table.slot(hash, 0, 1, choices.length, content, byContent = true))
    else choices(Table.slot(hash, mapPartition, mappers, choices.length, content, byContent = false))
  }

  val partitions: Int = table.partitions
  val probe: Probe = table.probe
}

private final class SpreadRows(
    rows: Iterator[InternalRow],
    asked: UnsafeProjection,
    spread: Spread,
    sampler: KeySampler,
    text: KeyText
) extends Iterator[InternalRow] {
  private val cursor = SpreadCursor.ofTask()
  private var row: InternalRow = _
  private var targets: Array[Int] = Array.emptyIntArray
  private var place = 0

  override def hasNext: Boolean = place < targets.length || rows.hasNext

  override def next(): InternalRow = {
    if (place < targets.length) {
      cursor.aim(targets(place))
      place += 1
    } else {
      row = rows.next()
      aimFirst()
    }
    row
  }

  private def aimFirst(): Unit = {
    val found = asked(row)
    val hash = found.getInt(0)
    if (sampler ne null) {
      sampler.see(hash)
      if ((text ne null) && text.wanted) text.take(row)
    }
    val code = spread.probe.find(hash)
    if (code >= 0) cursor.aim(code)
    else if (code == Probe.Absent) cursor.aim(Math.floorMod(hash, spread.partitions))
    else {
      targets = spread(code, hash, found.getInt(1))
      cursor.aim(targets(0))
      place = 1
    }
  }
}
