// In Spark's package because it extends Spark's own provider, which is private.
package org.apache.spark.sql.skewless.state

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import io.skewless.SkewlessException
import io.skewless.moves.{Chunk, ChunkReader}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.StateStoreColumnFamilySchemaUtils
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.types.StructType

/**
 * Spark's RocksDB provider, whose stores follow their keys.
 *
 * In a batch that swaps tables, a store whose partition gives or takes keys is served as version N with the
 * leaving rows gone and the entering rows present, to readers and writers alike, and commits as N+1: the move
 * is part of the task's own state commit. In every other batch, and for every other partition, it is Spark's
 * provider and nothing else.
 *
 * A run with the jar but without the extension is refused here: a stateful task without a mark writes
 * nothing.
 */
class MovingStateStoreProvider extends MeasuredStateStoreProvider {
  import MovingStateStoreProvider._

  private var id: StateStoreProviderId = _
  private var hadoop: Configuration = _
  private var rowChecksums = false
  private var encoding = ""

  /**
   * The store that already carries the moves of this batch, between the read and the write phase of one task.
   */
  private var migrated: Option[StateStore] = None

  override def init(
      storeId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConf: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]
  ): Unit = {
    super.init(
      storeId,
      keySchema,
      valueSchema,
      keyStateEncoderSpec,
      useColumnFamilies,
      storeConf,
      hadoopConf,
      useMultipleValuesPerKey,
      stateSchemaProvider
    )
    id = StateStoreProviderId(storeId, UUID.fromString(hadoopConf.get(StreamExecution.RUN_ID_KEY)))
    hadoop = hadoopConf
    encoding = storeConf.stateStoreEncodingFormat
    rowChecksums = rocksDB.conf.rowChecksumEnabled
    loaded.put(id, this)
  }

  override def close(): Unit = {
    loaded.remove(id, this)
    super.close()
  }

  /** Has the rows measured that the current task is about to write, if somebody wants to know. */
  private def measure(): Unit = listen(
    StateMarks.find(stateStoreId).flatMap(_.measure).map(_.of(stateStoreId)).orNull
  )

  /** Version N as it was committed, whatever moves in the current batch: what the export reads. */
  private[skewless] def committed(version: Long, checkpointId: Option[String]): StateStore =
    super.getReadStore(version, checkpointId)

  override def getReadStore(version: Long, uniqueId: Option[String]): StateStore = moves(version) match {
    case Some(moving) =>
      val loaded = super.getStore(version, uniqueId)
      measure()
      val store = migrate(loaded, moving)
      migrated = Some(store)
      store
    case None => super.getReadStore(version, uniqueId)
  }

  override def getStore(
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean
  ): StateStore = {
    checkMark(version, loadEmpty)
    val moving = moves(version)
    val store = super.getStore(version, uniqueId, forceSnapshotOnCommit, loadEmpty)
    measure()
    moving.fold(store)(migrate(store, _))
  }

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean
  ): StateStore = {
    checkMark(version, loadEmpty = false)
    migrated.filter(_ eq readStore) match {
      case Some(writable) =>
        migrated = None
        writable
      case None if moves(version).isDefined =>
        throw fenced(s"its reader saw version $version without the keys that move in this batch")
      case None =>
        measure()
        super.upgradeReadStoreToWriteStore(readStore, version, uniqueId, forceSnapshotOnCommit)
    }
  }

  private def moves(version: Long): Option[(Seq[Chunk], Seq[Chunk])] =
    StateMarks.find(stateStoreId).filter(_.mark.version == version).flatMap(_.movesOf(stateStoreId))

  private def migrate(store: StateStore, moving: (Seq[Chunk], Seq[Chunk])): StateStore =
    try {
      val (leaving, entering) = moving
      listen(null) // a key that leaves is measured where it goes, not here as gone
      ChunkReader.foreach(leaving, hadoop)((chunk, key, _) => rocksDB.remove(key, chunk.family))
      entering.map(_.family).distinct.filterNot(rocksDB.checkColFamilyExists).foreach { family =>
        rocksDB.createColFamilyIfAbsent(family, StateStoreColumnFamilySchemaUtils.isInternalColFamily(family))
      }
      measure()
      val merges = entering.filter(_.merges).map(_.family).distinct.map(name => name -> merge(name)).toMap
      ChunkReader.foreach(entering, hadoop) { (chunk, key, value) =>
        if (chunk.merges) merges(chunk.family).put(key, value) else put(chunk, key, value)
      }
      store
    } catch {
      case e: Throwable =>
        store.abort()
        throw e
    }

  private def merge(name: String): Merge = {
    val layout = StateMarks.find(stateStoreId).flatMap(_.layout(stateStoreId))
    val found =
      for (of <- layout; family <- of.family(name))
        yield Merge.of(family, encoding, of.usesFamilies, rocksDB)
    found.getOrElse(throw fenced(s"how $name keeps its rows is not known, so rows cannot be added to it"))
  }

  /**
   * A list with row checksums is one value with a checksum for each element: Spark must add them one by one.
   */
  private def put(chunk: Chunk, key: Array[Byte], value: Array[Byte]): Unit =
    if (rowChecksums && chunk.isList)
      rocksDB.putList(key, ListValue.elements(value, rocksDB.mergeDelimiter.length), chunk.family)
    else rocksDB.put(key, value, chunk.family)

  /**
   * Stores that Spark loads for a running query are written by marked tasks only; the state reader opens
   * stores of its own.
   */
  private def checkMark(version: Long, loadEmpty: Boolean): Unit =
    if (loadEmpty)
      throw fenced(
        "something rewrites it from scratch (Spark's offline repartition?), where keys go to plain hashing"
      )
    else if (StateStore.isLoaded(id) && !StateMarks.find(stateStoreId).exists(_.mark.version == version))
      throw fenced(
        s"the task that writes version ${version + 1} was not planned by Skewless. " +
          SkewlessException.SetExtension
      )

  private def fenced(why: String): SkewlessException = SkewlessException.checkpoint(
    s"the state of operator ${stateStoreId.operatorId}, partition ${stateStoreId.partitionId} under " +
      s"${stateStoreId.checkpointRootLocation} is kept by Skewless: $why. Nothing was written."
  )
}

private[skewless] object MovingStateStoreProvider {

  /**
   * Every provider that is open in this JVM: the export reads a store where it is loaded, without a word to
   * Spark's coordinator.
   */
  private val loaded = new ConcurrentHashMap[StateStoreProviderId, MovingStateStoreProvider]()

  def find(id: StateStoreProviderId): Option[MovingStateStoreProvider] = Option(loaded.get(id))
}
