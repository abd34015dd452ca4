package org.apache.spark.sql.skewless.placement

import org.apache.spark.SparkContext.DRIVER_IDENTIFIER
import org.apache.spark.sql.skewless.StatefulRun
import org.scalatest.funsuite.AnyFunSuite

/**
 * Where executors cannot be changed nothing is. That they come and go is seen on real ones:
 * `integration/test_placement.py`.
 */
class ExecutorsSuite extends AnyFunSuite with StatefulRun {
  private def executors = new Executors(spark.sparkContext)

  test("in one JVM executors can be neither added nor ended, and it is said why") {
    assert(executors.obstacle.exists(_.contains("standalone cluster and in local-cluster")))
    for (change <- Seq[() => Any](() => executors.request(2), () => executors.end(DRIVER_IDENTIFIER, 0))) {
      val message = refusal("SettingError")(change()).getMessage
      assert(message.contains("the executors cannot be changed"), message)
    }
    assert(executors.isAlive(DRIVER_IDENTIFIER) && !executors.isAlive("1"))
  }

  test("warming runs on the executor's slots, and for one that is gone does nothing") {
    executors.warm(DRIVER_IDENTIFIER, 2)
    executors.warm("99", 2)
  }
}
