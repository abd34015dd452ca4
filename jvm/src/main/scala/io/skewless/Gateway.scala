package io.skewless

import java.lang.{Double => JDouble}
import java.util.{List => JList, Map => JMap}

import scala.jdk.CollectionConverters._

import io.skewless.observe.{Application, BatchLoads, ObservedBatch, Watching}
import io.skewless.table.TableCodec
import org.apache.spark.sql.{Column, DataFrame, SparkSession}
import org.apache.spark.sql.classic.{SparkSession => ClassicSession}
import org.apache.spark.sql.skewless.checkpoint.{ConvertCheckpoint, MendCheckpoint, ReleaseCheckpoint}
import org.apache.spark.sql.skewless.placement.Executors
import org.apache.spark.sql.skewless.query.QueryRegistry
import org.apache.spark.sql.skewless.route.Routing
import org.apache.spark.sql.skewless.ui.LoopNews
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * All that Python may call, over Py4J, one direction only: `gateway.py` is its other half. Arguments and
 * results are plain values, tables are `TableCodec`'s bytes. Every refusal is a `SkewlessException`, whose
 * code names the Python error. What only asks changes nothing; what changes something says so by its verb.
 * `loop` is a name that each loop gives itself: several sessions of one application have a loop each.
 */
object Gateway {

  // -- session and DataFrames -----------------------------------------------------------------------------

  def version(): String = SparkLine.JarVersion

  /** Throws unless jar, Spark line, plugin and extension are all there. */
  def check(session: SparkSession): Unit = {
    SparkLine.check(session.version)
    Routing.checkSession(session.asInstanceOf[ClassicSession])
    application(session)
    ()
  }

  def repartition(df: DataFrame, n: Int, columns: JList[Column], table: Array[Byte]): DataFrame =
    Routing.repartition(df, n, columns.asScala.toSeq, Option(table).map(TableCodec.decode))

  def keyHash(session: SparkSession, columns: JList[Column]): Column =
    Routing.keyHash(session.asInstanceOf[ClassicSession], columns.asScala.toSeq)

  // -- tables ---------------------------------------------------------------------------------------------

  /** Stores a table and pins the next unplanned batch to it: (epoch, first batch under it). */
  def publish(session: SparkSession, query: StreamingQuery, table: Array[Byte]): Array[Long] = {
    val (epoch, batch) =
      QueryRegistry.run(query).tables.publish(TableCodec.decode(table), application(session).conf)
    Array(epoch, batch)
  }

  /** Takes every key home and gives the checkpoint back to plain Spark: the batch in which that happens. */
  def release(session: SparkSession, query: StreamingQuery): Long =
    QueryRegistry.run(query).tables.release(application(session).conf)

  /** The newest batch in the query's commit log, -1 before the first; reads the log. */
  def newestInLog(query: StreamingQuery): Long =
    QueryRegistry.run(query).execution.commitLog.getLatestBatchId().getOrElse(-1L)

  /** The newest table of a query as bytes, or null if none was published. */
  def latest(query: StreamingQuery): Array[Byte] =
    QueryRegistry.run(query).tables.latest.map(TableCodec.encode).orNull

  /** The table that a batch of a query runs under as bytes, or null if there is none. */
  def tableAt(query: StreamingQuery, batch: Long): Array[Byte] =
    QueryRegistry.run(query).tables.tableAt(batch).map(TableCodec.encode).orNull

  /** The committed swaps of a query's run as JSON, oldest first. */
  def swaps(query: StreamingQuery): JList[String] = QueryRegistry.run(query).swaps.records.map(_.json).asJava

  // -- checkpoints of stopped queries ---------------------------------------------------------------------

  def releaseCheckpoint(session: SparkSession, location: String): String =
    ReleaseCheckpoint.release(classic(session), location)

  def prepareRepartition(session: SparkSession, location: String): Unit =
    ReleaseCheckpoint.prepareRepartition(classic(session), location)

  def undoRelease(session: SparkSession, location: String): String =
    ReleaseCheckpoint.undo(classic(session), location)

  def mendCheckpoint(session: SparkSession, location: String): String =
    MendCheckpoint(classic(session), location)

  /**
   * What there is to convert; nothing is written before `copyStore`. The folder of the file sink is null if
   * the query has none.
   */
  def conversion(
      session: SparkSession,
      location: String,
      checkpointFormat: Int,
      fileSink: String
  ): ConvertCheckpoint =
    new ConvertCheckpoint(classic(session), location, checkpointFormat, Option(fileSink))

  def copyStore(conversion: ConvertCheckpoint, store: Int): Long = conversion.copy(store)

  def commitConversion(conversion: ConvertCheckpoint): String = conversion.commit()

  def dropOld(session: SparkSession, location: String): String =
    ConvertCheckpoint.dropOld(classic(session), location)

  // -- placement ------------------------------------------------------------------------------------------

  /** From the next batch that is planned on, these partitions of a query's state would rather run there. */
  def place(query: StreamingQuery, wishes: JMap[Integer, String]): Unit = {
    val run = QueryRegistry.run(query)
    run.place(wishes.asScala.map { case (partition, executor) => partition.intValue -> executor }.toMap)
  }

  /** The wishes in force, by partition. */
  def placed(query: StreamingQuery): JMap[Integer, String] =
    QueryRegistry
      .run(query)
      .placed
      .map { case (partition, executor) => Int.box(partition) -> executor }
      .asJava

  // -- executors ------------------------------------------------------------------------------------------

  /** The executors that take tasks, each with its slots: "id slots" a line. */
  def executors(session: SparkSession): String = {
    val isAlive = fleet(session).isAlive _
    val alive = application(session).listener.aliveSlots.byExecutor.filter(one => isAlive(one._1))
    alive.map { case (id, slots) => s"$id $slots" }.mkString("\n")
  }

  /** Why executors can be neither added nor ended here; null if nothing speaks against it. */
  def fixedExecutors(session: SparkSession): String = fleet(session).obstacle.orNull

  /** Asks the cluster for so many executors in all; none is ended. */
  def requestExecutors(session: SparkSession, total: Int): Boolean = fleet(session).request(total)

  /** Has a new executor load what a stateful task needs, in tasks that do nothing else; waits for it. */
  def warmExecutor(session: SparkSession, executor: String): Unit =
    fleet(session).warm(executor, sparkSlots(session, executor))

  /**
   * Ends an executor once no job runs; another does not come in its place. False if some job ran all these
   * milliseconds: then nothing is changed.
   */
  def endExecutor(session: SparkSession, executor: String, waitMs: Long): Boolean =
    fleet(session).end(executor, waitMs)

  private def fleet(session: SparkSession): Executors = new Executors(classic(session).sparkContext)

  private def sparkSlots(session: SparkSession, executor: String): Int =
    application(session).listener.aliveSlots.byExecutor
      .collectFirst { case (`executor`, slots) => slots }
      .getOrElse(1)

  // -- watching -------------------------------------------------------------------------------------------

  /**
   * From the next batch of this run on its keys are counted, its planner waits up to `planWaitMs` for the
   * loop to decide, and with `lookAhead` a batch is shown before it is planned (`upcoming`). Again changes
   * how.
   */
  def watch(
      session: SparkSession,
      loop: String,
      query: StreamingQuery,
      planWaitMs: Long,
      lookAhead: Boolean
  ): Unit = registry(session).watch(loop, query, Watching(planWaitMs, lookAhead))

  /** The loop has ended: what only this loop watched is not counted any more. */
  def unwatch(session: SparkSession, loop: String): Unit = {
    registry(session).unwatch(loop)
    application(session).listener.news.forget(loop)
  }

  /** The loop watches this run no more. */
  def unwatchQuery(session: SparkSession, loop: String, query: StreamingQuery): Unit =
    registry(session).unwatch(loop, query)

  /**
   * Waits until a batch of any query is committed or shown that this loop has not heard of, or for so many
   * milliseconds: whether one was.
   */
  def await(session: SparkSession, loop: String, millis: Long): Boolean =
    application(session).listener.news.await(loop, millis)

  /** The loop has decided about all batches of a query up to this one: its planner need not wait. */
  def decided(session: SparkSession, queryId: String, batch: Long): Unit =
    registry(session).decided(queryId, batch)

  // -- asking ---------------------------------------------------------------------------------------------

  /**
   * Why a run of a query will take no table, as far as it is known by now; null if nothing speaks against it.
   */
  def obstacle(session: SparkSession, query: StreamingQuery): String =
    QueryRegistry.run(query).tables.obstacle(application(session).listener.hasCommitted(query.runId)).orNull

  /** The loads of a query's routed exchanges, oldest first; an empty id asks for batch jobs. */
  def loads(session: SparkSession, queryId: String): JList[BatchLoads] =
    application(session).listener.loads(queryId).asJava

  /** The committed batches of a query after `after`, oldest first. */
  def observed(session: SparkSession, queryId: String, after: Long): JList[ObservedBatch] =
    application(session).listener.observed(queryId, after).asJava

  /**
   * The newest batch of a query that was shown before it was planned, or null; its planner waits until it is
   * `decided`.
   */
  def upcoming(session: SparkSession, queryId: String): ObservedBatch =
    application(session).listener.upcoming(queryId).orNull

  /**
   * The newest committed batch of a query, -1 before the first: ask before `observed`, and pass to `decided`.
   */
  def newestCommitted(session: SparkSession, queryId: String): Long =
    application(session).listener.newestCommitted(queryId)

  // -- showing --------------------------------------------------------------------------------------------

  /**
   * What the loop knows of a query, for Spark's metrics: imbalance and pause may be null. False if no such
   * query runs.
   */
  def showMetrics(
      session: SparkSession,
      queryId: String,
      imbalance: JDouble,
      pauseMs: JDouble,
      errors: Long
  ): Boolean = application(session).metrics.show(queryId, imbalance, pauseMs, errors)

  private def classic(session: SparkSession): ClassicSession = session.asInstanceOf[ClassicSession]

  /**
   * News of the loop for the tab in Spark's UI, as JSON (`report/news.py`): true if there is a UI or an event
   * log to keep it, else nobody needs to send more.
   */
  def show(session: SparkSession, news: String): Boolean = LoopNews.post(classic(session).sparkContext, news)

  private def registry(session: SparkSession): QueryRegistry = QueryRegistry.of(classic(session).sparkContext)

  private def application(session: SparkSession): Application =
    Application.of(session.asInstanceOf[ClassicSession].sparkContext).getOrElse {
      throw SkewlessException.session(
        "the application has no Skewless plugin. Set " +
          s"spark.plugins=${classOf[SkewlessPlugin].getName} before the session starts, " +
          "or build it with skewless.configure(builder)."
      )
    }
}
