// In Spark's package because its name is in checkpoints.
package org.apache.spark.sql.skewless

import org.apache.spark.sql.skewless.state.MovingStateStoreProvider

/**
 * `spark.sql.streaming.stateStore.providerClass`: Spark's RocksDB provider, whose stores follow their keys.
 * All of it is in `MovingStateStoreProvider`; this is the name under which users and checkpoints know it.
 *
 * The name is frozen into each checkpoint made with it, so a run without the jar cannot open the state.
 */
class SkewlessStateStoreProvider extends MovingStateStoreProvider
