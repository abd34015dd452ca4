// The Scala half: one jar per Spark line, compiled against Spark's own artifacts, which the running Spark provides.
// `-Dskewless.line=4.3` chooses a line of the list; without it, the first.
val sparkLines = IO.readLines(file("python/skewless/spark/lines.txt")).filterNot(_.startsWith("#")).map(_.split(" "))
val sparkLine = sys.props.getOrElse("skewless.line", sparkLines.head(0))
val sparkRow = sparkLines.find(_(0) == sparkLine).getOrElse(sys.error(s"lines.txt has no Spark line $sparkLine"))
val sparkVersion = sparkRow(1)
val firstLine = sparkLine == sparkLines.head(0)

// A version that is not on Maven Central is in the pyspark wheel, which make puts into .venv-<line>.
val sparkFromWheel = sparkRow(2) == "wheel"
lazy val sparkJars = {
  val installed = (file(s".venv-$sparkLine").getAbsoluteFile / "lib" * "python*" / "site-packages" / "pyspark" / "jars").get()
  val folder = (sys.env.get("SKEWLESS_SPARK_JARS").map(file(_).getAbsoluteFile).toSeq ++ installed).headOption
  folder.fold(sys.error(s"the jars of pyspark $sparkVersion are missing; `make .venv-$sparkLine/ready` fetches them"))(
    f => Attributed.blankSeq((f * "*.jar").get())
  )
}
val skewlessVersion = IO.read(file("VERSION")).trim

ThisBuild / organization := "io.skewless"
ThisBuild / version := skewlessVersion
ThisBuild / scalaVersion := "2.13.18"

// Spark on JDK 17 needs these when it does not start its own JVM.
val opens = Seq(
  "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util", "java.util.concurrent",
  "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"
).map(p => s"--add-opens=java.base/$p=ALL-UNNAMED")

// State stores write to disk and wait for it, many times a batch: where there is a disk in memory, the suites use that.
val ramDisk = Seq(file("/dev/shm")).filter(d => d.canWrite && d.getUsableSpace > (4L << 30)).map(d => s"-Djava.io.tmpdir=$d")

// Half of the suites' time; they run in a JVM of their own beside the others.
val slowest = Seq("StateSwapSuite", "StateCrashSuite")

Global / concurrentRestrictions := Seq(Tags.limit(Tags.ForkedTestGroup, 2), Tags.exclusiveGroup(Tags.Clean))

lazy val jvm = (project in file("jvm"))
  .settings(
    name := s"skewless-spark-$sparkLine", moduleName := s"skewless-spark-$sparkLine",
    Compile / unmanagedSourceDirectories += baseDirectory.value / "src" / "main" / s"scala-spark-$sparkLine",
    Test / unmanagedSourceDirectories += baseDirectory.value / "src" / "test" / s"scala-spark-$sparkLine",
    Compile / sourceGenerators += Def.task {
      val built = (Compile / sourceManaged).value / "BuiltFor.scala"
      IO.write(built, s"""package io.skewless\n\nobject BuiltFor {\n  val Line = "$sparkLine"\n}\n""")
      Seq(built)
    }.taskValue,
    // Each further line has a folder of its own, so that one line's classes never meet another's; the jars lie together.
    Compile / packageBin / artifactPath :=
      baseDirectory.value / "target" / "scala-2.13" / s"skewless-spark-${sparkLine}_2.13-$skewlessVersion.jar",
    target := (if (firstLine) target.value else target.value / s"spark-$sparkLine"),
    libraryDependencies += "org.scalatest" %% "scalatest-funsuite" % "3.2.19" % Test,
    libraryDependencies ++= (if (sparkFromWheel) Nil else Seq("org.apache.spark" %% "spark-sql" % sparkVersion % Provided)),
    Compile / unmanagedJars ++= (if (sparkFromWheel) sparkJars else Nil),
    scalacOptions ++= Seq("-deprecation", "-feature", "-unchecked", "-Xlint", "-Wunused", "-Werror", "-release:17"),
    Compile / packageBin / packageOptions += Package.ManifestAttributes("Implementation-Version" -> skewlessVersion),
    Test / fork := true,
    // The suites of one JVM run one after the other, since they share a session; two JVMs run side by side.
    Test / testGrouping := {
      val options = (Test / forkOptions).value
      val byJvm = (Test / definedTests).value.groupBy(t => slowest.exists(name => t.name.endsWith("." + name)))
      byJvm.toSeq.map { case (slow, suites) =>
        Tests.Group(if (slow) "slow" else "rest", suites.sortBy(_.name), Tests.SubProcess(options))
      }
    },
    Test / javaOptions ++= opens ++ ramDisk ++
      Seq("-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dspark.testing=true", "-Djdk.reflect.useDirectMethodHandle=false"),
    // -Dskewless.writeGolden: the suites write the golden file anew before they compare with it.
    // -Dskewless.matrix=full: every fault with every operator.
    Test / javaOptions ++= Seq("writeGolden", "matrix", "seed").flatMap(p => sys.props.get(s"skewless.$p").map(v => s"-Dskewless.$p=$v")),
    Test / testOptions += Tests.Argument(TestFrameworks.ScalaTest, "-oD")
  )

lazy val benchJvm = (project in file("bench/jvm"))
  .enablePlugins(JmhPlugin)
  .dependsOn(jvm)
  .settings(
    name := "skewless-bench",
    publish / skip := true,
    libraryDependencies += "org.apache.spark" %% "spark-sql" % sparkVersion
  )

lazy val root = (project in file(".")).aggregate(jvm).settings(publish / skip := true)

// A Kafka broker and Spark's connector to it, for the tests: `build/sbt kafka/jars` puts their jars in one folder.
lazy val kafka = (project in file("build/kafka"))
  .settings(
    publish / skip := true,
    libraryDependencies ++= Seq(
      "org.apache.kafka" %% "kafka" % "3.9.1",
      "org.slf4j" % "slf4j-simple" % "1.7.36", // the broker's log goes to its standard error
      ("org.apache.spark" %% "spark-sql-kafka-0-10" % sparkVersion).intransitive(),
      // Delegation tokens, which the tests do not use; of an older line, which every mirror of Maven Central has.
      ("org.apache.spark" %% "spark-token-provider-kafka-0-10" % "4.0.0").intransitive(),
      "org.apache.commons" % "commons-pool2" % "2.12.0"
    ),
    TaskKey[Unit]("jars") := {
      val folder = baseDirectory.value / "jars"
      IO.delete(folder)
      (Compile / externalDependencyClasspath).value.files.foreach(jar => IO.copyFile(jar, folder / jar.getName))
      IO.touch(folder / "complete")
    }
  )
