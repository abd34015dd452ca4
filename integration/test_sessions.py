"""Ways to start a session, right and wrong, each in a process of its own: configure, spark-submit, and what
is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from integration.conftest import ROOT

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SPARK_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")

HEAD = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import skewless
base = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")

def show(call):
    try:
        call()
        print("FINE")
    except skewless.errors.SkewlessError as error:
        print(type(error).__name__, error)
"""

USE = """
df = spark.range(100).selectExpr("id % 5 as k")
count = skewless.repartition(df, 3, "k", table=skewless.Table(3, {1: 2})).count()
print("COUNT", count, type(spark).__module__)
"""


def test_configure_keeps_the_jars_plugins_and_extensions_that_are_there(
    run_python: Run, tmp_path: Path
) -> None:
    other = tmp_path / "other.jar"
    shutil.make_archive(str(tmp_path / "other"), "zip", tmp_path)
    (tmp_path / "other.zip").rename(other)
    script = (
        HEAD
        + f"""
spark = skewless.configure(base.config("spark.jars", {str(other)!r})).getOrCreate()
for key in ("spark.jars", "spark.plugins", "spark.sql.extensions"):
    print(key, spark.sparkContext.getConf().get(key))
again = skewless.configure(base)
print("AGAIN", again._options["spark.plugins"])
"""
        + USE
    )
    out = run_python(script).stdout
    assert f"spark.jars {other}," in out
    assert "skewless-spark-4.2_2.13" in out
    assert "AGAIN io.skewless.SkewlessPlugin\n" in out
    assert "COUNT 100" in out


def test_configure_sets_the_state_store_provider_unless_the_builder_names_another(run_python: Run) -> None:
    script = (
        HEAD
        + """
from skewless.spark.session import PROVIDER_KEY
named = SparkSession.Builder().config(PROVIDER_KEY, "org.example.Provider")
print("NAMED", skewless.configure(named)._options[PROVIDER_KEY])
spark = skewless.configure(base).getOrCreate()
print("SET", spark.conf.get(PROVIDER_KEY))
"""
    )
    out = run_python(script).stdout
    assert "SET org.apache.spark.sql.skewless.SkewlessStateStoreProvider\n" in out
    assert "NAMED org.example.Provider\n" in out


def test_spark_submit_with_jars_and_the_conf_file_runs_a_query(run_python: Run) -> None:
    jar = subprocess.check_output([sys.executable, "-m", "skewless", "jar-path"], text=True).strip()
    submit = (
        SPARK_SUBMIT,
        "--master",
        "local[1]",
        "--jars",
        jar,
        "--properties-file",
        str(ROOT / "conf" / "skewless.conf"),
    )
    script = (
        "from pyspark.sql import SparkSession\nimport skewless\nspark = SparkSession.builder.getOrCreate()\n"
        + USE
    )
    assert "COUNT 100" in run_python(script, *submit).stdout
    configured = script.replace("SparkSession.builder", "skewless.configure(SparkSession.builder)")
    assert "COUNT 100" in run_python(configured, *submit).stdout


def test_spark_submit_without_the_jar_says_how_to_give_it(run_python: Run) -> None:
    script = HEAD + "show(lambda: skewless.configure(SparkSession.builder))"
    out = run_python(script, SPARK_SUBMIT, "--master", "local[1]").stdout
    assert "SessionError" in out
    assert "--jars" in out


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("base", "jar is not on the driver's class path"),
        ("base.config('spark.jars', str(skewless.spark.jar.jar_path()))", "no Skewless extension"),
        (
            "base.config('spark.jars', str(skewless.spark.jar.jar_path())).config('spark.sql.extensions', "
            "skewless.spark.session.EXTENSION)",
            "no Skewless plugin",
        ),
    ],
)
def test_a_session_that_lacks_a_part_is_told_which(run_python: Run, how: str, message: str) -> None:
    script = (
        HEAD
        + f"""
import skewless.spark.jar, skewless.spark.session
spark = ({how}).getOrCreate()
show(lambda: skewless.repartition(spark.range(5), 2, "id"))
show(lambda: skewless.balance(spark))
print("PLAIN", spark.range(5).count())
"""
    )
    out = run_python(script).stdout
    assert out.count("SessionError") == 2
    assert out.count(message) == 2
    assert "PLAIN 5" in out


def test_a_process_that_started_without_the_jar_is_told_to_restart(run_python: Run) -> None:
    script = HEAD + "spark = base.getOrCreate()\nspark.stop()\nshow(lambda: skewless.configure(base))"
    assert "SessionError this process started its JVM without the Skewless jar" in run_python(script).stdout


def test_a_connect_session_is_refused(run_python: Run) -> None:
    script = (
        HEAD
        + """
show(lambda: skewless.configure(SparkSession.builder.remote("sc://localhost")))
os.environ["SPARK_REMOTE"] = "sc://localhost"
show(lambda: skewless.configure(SparkSession.builder))

class Connect:
    pass

show(lambda: skewless.balance(Connect()))
"""
    )
    assert run_python(script).stdout.count("SessionError") == 3


def test_another_spark_line_is_refused_on_both_sides(run_python: Run) -> None:
    script = (
        HEAD
        + """
import pyspark
real, pyspark.__version__ = pyspark.__version__, "4.1.0"
show(lambda: skewless.configure(base))
pyspark.__version__ = real
spark = skewless.configure(base).getOrCreate()
try:
    spark._jvm.io.skewless.SparkLine.check("4.1.0")
except Exception as error:
    print("JVM", error.java_exception.getCode(), error.java_exception.getMessage())
"""
    )
    out = run_python(script).stdout
    assert "VersionError this release of Skewless serves Spark 4.2" in out
    assert "JVM VersionError this Skewless jar" in out


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("spark.skewless.tabel.maxEntries", "5", "there is no setting spark.skewless.tabel.maxEntries"),
        ("spark.skewless.table.maxEntries", "-1", "whole number from 0"),
        ("spark.skewless.table.maxEntries", "many", "whole number from 0"),
    ],
)
def test_a_wrong_setting_stops_the_application_before_it_starts(
    run_python: Run, key: str, value: str, message: str
) -> None:
    done = run_python(
        HEAD + f"skewless.configure(base.config({key!r}, {value!r})).getOrCreate()", check=False
    )
    assert done.returncode != 0
    assert message in done.stdout + done.stderr


def test_no_more_listening_sockets_than_plain_pyspark(run_python: Run) -> None:
    script = """
import json, os, sys, psutil
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import skewless
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
plain = bool(os.environ.get("PLAIN"))
spark = (builder if plain else skewless.configure(builder)).getOrCreate()
df = spark.range(100).selectExpr("id % 5 as k")
if plain:
    df.repartition(3, "k").count()
else:
    balancer = skewless.balance(spark)
    stream = spark.readStream.format("rate").load().selectExpr("value as k")
    writer = skewless.repartition(stream, 3, "k").writeStream.format("noop")
    query = writer.option("checkpointLocation", os.environ["CHECKPOINT"]).start()
    balancer.publish(query, skewless.Table(3, {1: 2}))
    skewless.repartition(df, 3, "k", table=skewless.Table(3, {1: 2})).count()
me = psutil.Process()
connections = [c for p in [me, *me.children(recursive=True)] for c in p.net_connections("inet")]
listening = [c for c in connections if c.status == psutil.CONN_LISTEN]
print("SOCKETS", json.dumps(len(listening)))
"""
    counts = {}
    for name, plain in (("plain", "1"), ("skewless", "")):
        env = {
            "PLAIN": plain,
            "CHECKPOINT": str(Path(os.environ.get("TMPDIR", "/tmp")) / f"sockets-{os.getpid()}-{name}"),
        }
        out = run_python(script, env=env).stdout
        counts[name] = json.loads(out.split("SOCKETS", 1)[1])
    assert counts["plain"] > 0
    assert counts["skewless"] <= counts["plain"]


def test_the_command_advise_reads_a_table(tmp_path: Path) -> None:
    keys = pa.table({"user": ["hot" if i % 4 == 0 else f"u{i % 997}" for i in range(8000)]})
    (tmp_path / "events").mkdir()
    pq.write_table(keys, tmp_path / "events" / "part.parquet")
    command = [sys.executable, "-m", "skewless", "advise", "--key", "user", "--workers", "8", "--json"]
    done = subprocess.run(
        [*command, f"parquet.`{tmp_path}/events`"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout.splitlines()[-1])
    assert advice["hot"][0]["name"] == "hot"
    assert advice["tuples"] == 8000
    missing = subprocess.run(
        [*command, "no_such_table"], capture_output=True, text=True, check=False, timeout=300
    )
    assert missing.returncode != 0
    assert "neither a file nor a table" in missing.stderr


STREAM = """
import time
from pathlib import Path
from pyspark.sql.types import StructType

def rounds(folder, first, last):
    for number in range(first, last):
        rows = "\\n".join('{"k": "hot", "v": 1}' for _ in range(200))
        rows += "\\n" + "\\n".join('{"k": "%d", "v": 1}' % i for i in range(100))
        Path(folder, f".{number}").write_text(rows)
        Path(folder, f".{number}").rename(Path(folder, f"{number:03d}.json"))

def start(session, name, folder):
    Path(folder, "in").mkdir(parents=True, exist_ok=True)
    rounds(Path(folder, "in"), 0, 2)
    source = session.readStream.schema("k STRING, v LONG").option("maxFilesPerTrigger", 1)
    counts = source.json(str(Path(folder, "in"))).groupBy("k").count()
    writer = counts.writeStream.outputMode("update").format("noop").queryName(name)
    return writer.option("checkpointLocation", str(Path(folder, "checkpoint"))).start()

def seen(balancer, batches, seconds=60):
    # waits until the loop has seen so many batches of its one query with its hot key counted
    until = time.time() + seconds
    while time.time() < until:
        queries = balancer.status().queries
        found = [batch.batch for query in queries for batch in query.batches if batch.hot_keys]
        if len(queries) == 1 and len(found) >= batches:
            return queries[0].name, len(found)
        time.sleep(0.2)
    return [(query.name, len(query.batches)) for query in balancer.status().queries]
"""


def test_two_sessions_with_a_loop_each_do_not_disturb_each_other(run_python: Run, tmp_path: Path) -> None:
    script = (
        HEAD
        + STREAM
        + f"""
one = skewless.configure(base.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
two = one.newSession()
a, b = skewless.balance(one), skewless.balance(two)
first, second = start(one, "first", {str(tmp_path / "1")!r}), start(two, "second", {str(tmp_path / "2")!r})
for folder in ({str(tmp_path / "1" / "in")!r}, {str(tmp_path / "2" / "in")!r}):
    rounds(folder, 2, 6)
print("A", *seen(a, 3))
print("B", *seen(b, 3))
counted = seen(b, 3)[1]
a.stop()
rounds({str(tmp_path / "2" / "in")!r}, 6, 10)
print("STILL", *seen(b, counted + 3))
"""
    )
    out = run_python(script).stdout
    assert "A first " in out
    assert "B second " in out
    assert "STILL second " in out  # the end of one loop must not end the counting for the other


def test_start_stop_and_start_again_in_one_process(run_python: Run, tmp_path: Path) -> None:
    script = (
        HEAD
        + STREAM
        + f"""
for number in ("1", "2"):
    spark = skewless.configure(base.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
    registries = spark._jvm.org.apache.spark.sql.skewless.query.QueryRegistry
    balancer = skewless.balance(spark)
    query = start(spark, "run" + number, {str(tmp_path)!r} + "/" + number)
    rounds({str(tmp_path)!r} + "/" + number + "/in", 2, 6)
    print("SEEN", *seen(balancer, 3))
    print("PUBLISHED", balancer.publish(query, skewless.Table(2, {{5: 0}})).epoch > 0)
    spark.stop()
    print("LEFT", registries.kept())
"""
    )
    out = run_python(script).stdout
    assert "SEEN run1 " in out
    assert "SEEN run2 " in out
    assert out.count("PUBLISHED True") == 2
    assert out.count("LEFT 0") == 2
