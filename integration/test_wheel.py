"""The wheel as a user gets it: built, installed in a fresh virtual environment, and used far from the
checkout. pip takes the newest Spark that the wheel allows, so that line's jar is the one that runs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from integration.conftest import ROOT
from skewless.spark.jar import NEWEST_LINE, spark_lines

SCRIPT = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import skewless
assert "site-packages" in skewless.__file__, skewless.__file__
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = skewless.configure(builder).getOrCreate()
df = spark.range(100).selectExpr("id % 5 as k")
key_hash = df.filter("k = 3").select(skewless.key_hash("k")).first()[0]
parts = skewless.repartition(df, 4, "k", table=skewless.Table(4, {key_hash: 1})).rdd.glom().collect()
print("AT", [i for i, part in enumerate(parts) if any(row.k == 3 for row in part)], sum(map(len, parts)))
"""


def test_the_wheel_carries_a_jar_for_each_line_and_runs_a_query_in_a_fresh_environment(
    tmp_path: Path,
) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("skewless-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    jars = [name.split("_")[0] for name in names if name.endswith(".jar")]
    assert sorted(jars) == [f"skewless/jars/skewless-spark-{line}" for line in spark_lines()]
    assert "skewless/conf/skewless.conf" in names
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[spark]"], check=True, timeout=600)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [tmp_path / "venv" / "bin" / "skewless", "jar-path"]
    jar = subprocess.check_output(command, env=env, text=True, cwd=tmp_path).strip()
    assert Path(jar).is_relative_to(tmp_path / "venv")
    assert f"skewless-spark-{NEWEST_LINE}_" in jar
    (tmp_path / "job.py").write_text(SCRIPT)
    out = subprocess.check_output([python, "job.py"], env=env, text=True, cwd=tmp_path, timeout=300)
    assert "AT [1] 100" in out
