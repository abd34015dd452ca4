package io.skewless

/** The Spark line this jar was compiled for. Every entry point (plugin, extension, gateway) checks it. */
object SparkLine {
  val Served: String = BuiltFor.Line // written by the build, from its list of Spark lines

  /** The version of this jar, from its manifest; "dev" when run from class files. */
  val JarVersion: String = Option(getClass.getPackage.getImplementationVersion).getOrElse("dev")

  def check(running: String = org.apache.spark.SPARK_VERSION): Unit =
    if (!running.startsWith(Served + "."))
      throw SkewlessException.version(
        s"this Skewless jar ($JarVersion) serves Spark $Served, the running Spark is $running. Install " +
          s"pyspark $Served.x, or take " +
          "the jar for your Spark."
      )
}
