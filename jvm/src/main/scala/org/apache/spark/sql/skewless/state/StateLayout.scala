// In Spark's package because state schemas, encoders and partition keys are Spark-private.
package org.apache.spark.sql.skewless.state

import java.util.UUID

import io.skewless.SkewlessException
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.catalyst.expressions.{BoundReference, CollationAwareMurmur3Hash, UnsafeProjection}
import org.apache.spark.sql.execution.datasources.v2.state.metadata.StateMetadataPartitionReader
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  StatePartitionKeyExtractorFactory,
  StatefulOperatorStateInfo,
  StatefulOperatorsUtils
}
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate._
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SerializableConfiguration

/**
 * One column family of one state store: how to find the shuffle key in its rows.
 *
 * @param joinFormat the state format of a stream-stream join; of no account elsewhere
 * @param variable   the state variable of transformWithState that the family belongs to
 */
private[skewless] final case class StateFamily(
    operatorName: String,
    storeName: String,
    schema: StateStoreColFamilySchema,
    joinFormat: Int,
    variable: Option[TransformWithStateVariableInfo],
    schemas: Option[StateSchemaProvider]
) {
  def name: String = schema.colFamilyName

  /** Whether one key holds several values, each with a checksum of its own where rows have them. */
  def isList: Boolean =
    variable.exists(v => v.stateVariableType == StateVariableType.ListState && v.stateName == name)

  /** What the family holds of a stream-stream join; None for any other operator. */
  def join: Option[JoinFamily] =
    if (operatorName == StatefulOperatorsUtils.SYMMETRIC_HASH_JOIN_EXEC_OP_NAME)
      JoinFamily.of(storeName).orElse(JoinFamily.of(name))
    else None

  private def partitionKey =
    StatePartitionKeyExtractorFactory.create(
      operatorName,
      schema.keySchema,
      storeName,
      name,
      Some(joinFormat),
      variable
    )

  /**
   * Whether a key may have several rows here, or one that grows: what a batch writes is then not all that
   * there is.
   */
  def grows: Boolean = isList || partitionKey.partitionKeySchema.length != schema.keySchema.length

  /**
   * Key hash of a state row's encoded key: the hash by which the operator's exchange routes the rows of that
   * key. One a task.
   */
  def keyHash(encoding: String, usesFamilies: Boolean): Array[Byte] => Int = {
    val encoder = keyEncoder(encoding, usesFamilies)
    val extractor = partitionKey
    val hash = StateFamily.hashOf(extractor.partitionKeySchema)
    key => hash(extractor.partitionKey(encoder.decodeKey(key))).getInt(0)
  }

  /** One a task, as they reuse their rows. */
  def keyEncoder(encoding: String, usesFamilies: Boolean): RocksDBKeyStateEncoder =
    RocksDBStateEncoder.getKeyEncoder(dataEncoder(encoding), spec, usesFamilies)

  def valueEncoder(encoding: String): RocksDBValueStateEncoder =
    RocksDBStateEncoder.getValueEncoder(
      dataEncoder(encoding),
      schema.valueSchema,
      useMultipleValuesPerKey = false
    )

  private def spec = schema.keyStateEncoderSpec.get

  private def dataEncoder(encoding: String): RocksDBDataEncoder =
    if (encoding == StateStoreEncoding.Avro.toString)
      new AvroStateEncoder(spec, schema.valueSchema, schemas, name)
    else new UnsafeRowDataEncoder(spec, schema.valueSchema)
}

private[skewless] object StateFamily {
  def hashOf(schema: StructType): UnsafeProjection = UnsafeProjection.create(
    Seq(new CollationAwareMurmur3Hash(schema.fields.toSeq.zipWithIndex.map { case (field, i) =>
      BoundReference(i, field.dataType, field.nullable)
    }))
  )
}

/** One state store of an operator, with all its column families. */
private[skewless] final case class StateStoreLayout(
    operatorId: Long,
    storeName: String,
    families: Seq[StateFamily]
) {

  /** As Spark has it: an operator that uses column families has one besides the default. */
  val usesFamilies: Boolean = families.exists(_.name != StateStore.DEFAULT_COL_FAMILY_NAME)

  def family(name: String): Option[StateFamily] = families.find(_.name == name)

  /** A provider of its own for a store that is loaded nowhere in this JVM; the caller closes it. */
  def open(
      root: String,
      partition: Int,
      conf: StateStoreConf,
      hadoop: Configuration
  ): MovingStateStoreProvider = {
    val first = family(StateStore.DEFAULT_COL_FAMILY_NAME).getOrElse(families.head)
    val id = StateStoreProviderId(StateStoreId(root, operatorId, partition, storeName), UUID.randomUUID())
    StateStoreProvider
      .createAndInit(
        id,
        first.schema.keySchema,
        first.schema.valueSchema,
        first.schema.keyStateEncoderSpec.get,
        usesFamilies,
        conf,
        new Configuration(hadoop), // createAndInit writes the run's id into it
        useMultipleValuesPerKey = false,
        first.schemas
      )
      .asInstanceOf[MovingStateStoreProvider]
  }
}

private[skewless] object StateLayout {

  /** The stores of these operators as the batch before left them. */
  def read(
      session: SparkSession,
      operators: Seq[StatefulOperatorStateInfo],
      batchId: Long
  ): Seq[StateStoreLayout] = read(
    new Path(operators.head.checkpointLocation),
    batchId - 1,
    operators.map(_.operatorId).toSet,
    session.sessionState.conf.getConf(SQLConf.STREAMING_JOIN_STATE_FORMAT_VERSION),
    session.sessionState.newHadoopConf()
  )

  /**
   * The stores of the given operators as of a committed batch, from the metadata that Spark keeps in the
   * checkpoint. Driver.
   */
  def read(
      stateRoot: Path,
      batch: Long,
      operators: Set[Long],
      joinFormat: Int,
      conf: Configuration
  ): Seq[StateStoreLayout] = {
    val reader = new StateMetadataPartitionReader(
      stateRoot.getParent.toString,
      new SerializableConfiguration(conf),
      batch
    )
    val found = reader.allOperatorStateMetadata.toSeq.filter(meta => operators(meta.operatorInfo.operatorId))
    (operators -- found.map(_.operatorInfo.operatorId)).foreach { id =>
      throw SkewlessException.checkpoint(
        s"$stateRoot/$id has no operator metadata: without it the key of a state row cannot be known. The " +
          "checkpoint was written by " +
          "a Spark that Skewless does not serve, or is damaged; publish an empty table for this query."
      )
    }
    for {
      meta <- found
      store <- meta.stateStoresMetadata.toSeq
    } yield storeLayout(stateRoot, meta, store, joinFormat, conf)
  }

  private def storeLayout(
      root: Path,
      meta: OperatorStateMetadata,
      store: StateStoreMetadata,
      joinFormat: Int,
      conf: Configuration
  ): StateStoreLayout = {
    val operator = meta.operatorInfo
    val isTransform = StatefulOperatorsUtils.TRANSFORM_WITH_STATE_OP_NAMES.contains(operator.operatorName)
    val files = store match {
      case v2: StateStoreMetadataV2 => v2.stateSchemaFilePaths
      case _ => Nil
    }
    val variables = meta match {
      case v2: OperatorStateMetadataV2 if isTransform =>
        TransformWithStateOperatorProperties.fromJson(v2.operatorPropertiesJson).stateVariables
      case _ => Nil
    }
    val schemas =
      if (!isTransform) None
      else
        Some(
          new InMemoryStateSchemaProvider(
            StateSchemaMetadata.createStateSchemaMetadata(root.toString, conf, files)
          )
        )
    val id = StateStoreId(
      root.toString,
      operator.operatorId,
      StateStore.PARTITION_ID_TO_CHECK_SCHEMA,
      store.storeName
    )
    val checker = new StateSchemaCompatibilityChecker(
      StateStoreProviderId(id, UUID.randomUUID()),
      conf,
      files.map(new Path(_)),
      createSchemaDir = false
    )
    val families = checker
      .readSchemaFile()
      .filterNot(schema =>
        isTransform && schema.colFamilyName == StateStore.DEFAULT_COL_FAMILY_NAME
      ) // never written to
      .map { schema =>
        val variable = variables.find(
          _.stateName == StateStoreColumnFamilySchemaUtils.getBaseStateName(schema.colFamilyName)
        )
        StateFamily(
          operator.operatorName,
          store.storeName,
          withEncoder(schema, store),
          joinFormat,
          variable,
          schemas
        )
      }
    StateStoreLayout(operator.operatorId, store.storeName, families)
  }

  /** Schemas of the first metadata version name no encoder; the store's prefix length tells it. */
  private def withEncoder(
      schema: StateStoreColFamilySchema,
      store: StateStoreMetadata
  ): StateStoreColFamilySchema =
    if (schema.keyStateEncoderSpec.isDefined) schema
    else {
      val prefix = store.numColsPrefixKey
      val spec =
        if (prefix > 0) PrefixKeyScanStateEncoderSpec(schema.keySchema, prefix)
        else NoPrefixKeyStateEncoderSpec(schema.keySchema)
      schema.copy(keyStateEncoderSpec = Some(spec))
    }
}
