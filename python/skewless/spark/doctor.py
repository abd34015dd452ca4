"""What is wrong with a set-up and what to do about it: Python, Spark, Java, jar, session, checkpoint.

Separate from the checks that `configure` and the gateway make: those stop at the first thing that is wrong,
this one looks at everything, and needs neither pyspark nor a session to start.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from skewless.checkpoint.folder import open_folder
from skewless.checkpoint.inspect import inspect
from skewless.errors import CheckpointError, SessionError, SkewlessError, VersionError
from skewless.spark.jar import jar_path, line_of, spark_lines
from skewless.spark.submitted import (
    EXTENSION,
    EXTENSIONS_KEY,
    PLUGIN,
    PLUGINS_KEY,
    PROVIDER,
    PROVIDER_KEY,
    environment_flags,
    settings_of,
    spark_home,
    spark_release,
)
from skewless.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
CONFIGURE = "Build the session with skewless.configure(SparkSession.builder).getOrCreate()"
PATIENCE_SECONDS = 30
TASK_PACKAGES = ("pandas", "pyarrow", "google.protobuf")  # what pandas functions need on both sides
_LOOK = """
import importlib, sys
def has(name):
    try:
        return bool(importlib.import_module(name))
    except ImportError:
        return False
print("%d.%d" % sys.version_info[:2], *[name for name in sys.argv[1:] if has(name)])
"""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `remedy` is empty where nothing is to be done."""

    ok: bool
    what: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'WRONG':6} {self.what:11} {self.found}" + (
            f"\n{'':19}-> {self.remedy}" if self.remedy else ""
        )


@dataclass(frozen=True)
class Diagnosis:
    """All findings, in the order in which to mend them."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)

    @property
    def wrong(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.ok)

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    def __str__(self) -> str:
        verdict = "nothing is wrong" if self.ok else f"{counted(len(self.wrong), 'thing')} to mend"
        return "\n".join([*map(str, self.findings), verdict])

    __repr__ = __str__  # so that a cell of a notebook that ends with doctor() shows it


def doctor(spark: SparkSession | None = None, checkpoint: str | os.PathLike[str] | None = None) -> Diagnosis:
    """Looks at this machine's set-up, at a session (the active one if none is given) and at a query's
    checkpoint; changes nothing.

        print(skewless.doctor(spark, checkpoint="/checkpoints/clicks"))
    """
    session = _active() if spark is None else spark
    findings = [_python(), _pyspark(), _spark_home(), _workers(session), _java(), _jar(), _environment()]
    if session is not None:
        findings += _session(session)
    if checkpoint is not None:
        findings += _checkpoint(os.fspath(checkpoint))
    return Diagnosis(tuple(findings))


def _right(what: str, found: str) -> Finding:
    return Finding(True, what, found)


def _wrong(what: str, found: str, remedy: str) -> Finding:
    return Finding(False, what, found, remedy)


# -- the machine ---------------------------------------------------------------------------------------------


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return _right("Python", found)
    return _wrong("Python", found, f"Use Python {_dotted(OLDEST_PYTHON)} or newer.")


def _pyspark() -> Finding:
    found = _pyspark_version()
    if found is None:
        return _wrong("pyspark", "is not installed", "pip install 'skewless[spark]'")
    if line_of(found):
        return _right("pyspark", found)
    return _wrong(
        "pyspark", f"{found}; this release serves Spark {_lines()}", "pip install 'skewless[spark]'"
    )


def _spark_home() -> Finding:
    """The Spark that is started need not be the one that pip installed."""
    home = spark_home()
    if home is None:
        return _wrong("Spark", "none was found", "pip install 'skewless[spark]'")
    release = spark_release(home)
    if release is None:
        remedy = "Unset SPARK_HOME, or let it name a Spark distribution."
        return _wrong("Spark", f"there is no release of Spark in {home}", remedy)
    found = f"{release.version} for Scala {release.scala}, in {home}"
    line = line_of(release.version)
    if release.scala != "2.13" or line is None:
        remedy = f"Use Spark {_lines()} for Scala 2.13; if SPARK_HOME names another, unset it."
        return _wrong("Spark", found, remedy)
    python = _pyspark_version()
    if python is not None and line_of(python) not in (None, line):
        remedy = f"Install pyspark {line}.x, or unset SPARK_HOME: both must be of one line."
        return _wrong("Spark", f"{found}, is started by pyspark {python}", remedy)
    return _right("Spark", found)


def _pyspark_version() -> str | None:
    try:
        from pyspark.version import __version__

        return str(__version__)
    except ImportError:
        return None


def _workers(session: Any) -> Finding:
    """The tasks' Python must be of the driver's version and have its packages, and Spark says so only when
    the first task fails."""
    chosen = _task_python(session)
    remedy = f"Set PYSPARK_PYTHON={sys.executable} before the session starts"
    told = _output([chosen, "-c", _LOOK, *TASK_PACKAGES])
    if not told or not told.split():
        return _wrong("tasks", f"their Python, {chosen}, does not start", f"{remedy}.")
    (found, *there), here = told.split(), _dotted(sys.version_info[:2])
    if found != here:
        remedy += ", where the tasks have that path."
        return _wrong("tasks", f"run Python {found} ({chosen}), the driver {here}", remedy)
    missing = [name for name in TASK_PACKAGES if name not in there and _importable(name)]
    if missing:
        remedy += f", or run {chosen} -m pip install 'skewless[spark]'"
        return _wrong(
            "tasks",
            f"their Python, {chosen}, lacks {', '.join(missing)}, which the driver's has",
            f"{remedy}.",
        )
    return _right("tasks", f"run Python {here} too ({chosen})")


def _task_python(session: Any) -> str:
    """The session knows; before there is one, the environment says."""
    try:
        return str(session.sparkContext.pythonExec)
    except Exception:  # no session, or one of Spark Connect
        return os.environ.get("PYSPARK_PYTHON") or "python3"


def _importable(name: str) -> bool:
    try:
        return bool(importlib.import_module(name))
    except ImportError:
        return False


def _java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"Install a JDK {OLDEST_JAVA} and let JAVA_HOME name it."
    if java is None:
        return _wrong("Java", "there is none: JAVA_HOME is not set, and no java is on the PATH", remedy)
    told = _output([java, "-version"])
    if told is None:
        return _wrong("Java", f"{java} does not start", remedy)
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    if match is None:
        return _wrong("Java", f"{java} does not tell its version", remedy)
    found = f"{match[1]}, {java}"
    return _right("Java", found) if int(match[1]) >= OLDEST_JAVA else _wrong("Java", found, remedy)


def _jar() -> Finding:
    try:
        jar = jar_path()
    except VersionError:
        return _right("jar", "none is looked for, as none fits the Spark above")
    except SkewlessError as error:
        what, _, remedy = str(error).partition(". ")
        return _wrong("jar", what, remedy)
    rebuild = "Install the wheel again, or run `make jars` in the checkout."
    try:
        with zipfile.ZipFile(jar) as content:
            content.getinfo(f"{PLUGIN.replace('.', '/')}.class")
    except (OSError, zipfile.BadZipFile, KeyError):
        return _wrong("jar", f"{jar} is not a whole Skewless jar", rebuild)
    return _right("jar", str(jar))


def _environment() -> Finding:
    if os.environ.get("SPARK_REMOTE"):
        remedy = "Unset SPARK_REMOTE: Skewless works on the driver's own JVM, which Connect hides."
        return _wrong("settings", "SPARK_REMOTE is set: sessions are Spark Connect sessions", remedy)
    try:
        settings = settings_of(environment_flags())
    except SkewlessError as error:
        what, _, remedy = str(error).rpartition(". ")
        return _wrong("settings", what, remedy)
    provider = settings.get(PROVIDER_KEY)
    if provider and provider != PROVIDER:
        return _wrong("settings", f"{PROVIDER_KEY} is {provider}", _PROVIDER_REMEDY)
    return _right("settings", "spark-defaults.conf and PYSPARK_SUBMIT_ARGS keep nothing of Skewless out")


# -- a session -----------------------------------------------------------------------------------------------

_PROVIDER_REMEDY = (
    "Remove that setting: with another provider new stateful queries cannot be balanced. A query keeps the "
    "provider of its first start."
)


def _active() -> Any:
    try:
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession()
    except ImportError:
        return None


def _session(spark: Any) -> Iterator[Finding]:
    from skewless.spark.gateway import Gateway
    from skewless.spark.session import check_session

    try:
        check_session(spark)
        if not hasattr(spark, "_jsparkSession"):
            raise SessionError("this is a Spark Connect session. Use a classic one: no .remote(...).")
    except SessionError as error:
        what, _, remedy = str(error).partition(". ")
        yield _wrong("session", what, remedy)
        return
    yield _right("session", f"Spark {spark.version}, application {spark.sparkContext.appName}")
    yield _listed(spark, "plugin", PLUGINS_KEY, PLUGIN)
    yield _listed(spark, "extension", EXTENSIONS_KEY, EXTENSION)
    provider = spark.conf.get(PROVIDER_KEY)
    yield (
        _right("provider", provider)
        if provider == PROVIDER
        else _wrong("provider", provider, f"{_PROVIDER_REMEDY} {CONFIGURE} if nothing sets it.")
    )
    try:
        Gateway(spark)
        yield _right("Skewless", "answers in the driver's JVM")
    except SkewlessError as error:
        what, _, remedy = str(error).partition(". ")
        yield _wrong("Skewless", what, remedy)
    yield _slots(spark)


def _listed(spark: Any, what: str, key: str, name: str) -> Finding:
    present = str(spark.sparkContext.getConf().get(key) or "")
    if name in [part.strip() for part in present.split(",")]:
        return _right(what, f"{key} is {present}")
    return _wrong(
        what,
        f"{key} {'is ' + present if present else 'is not set'}",
        f"{CONFIGURE}, or start the job with spark-submit $(skewless submit-args); both before the first "
        "session of the process.",
    )


def _slots(spark: Any) -> Finding:
    partitions, slots = int(spark.conf.get("spark.sql.shuffle.partitions")), _task_slots(spark)
    found = f"{counted(partitions, 'shuffle partition')} on {counted(slots, 'task slot')}"
    advice = f"Set spark.sql.shuffle.partitions to {max(2, slots)} or more before a query's first start."
    if partitions == 1:
        return _wrong("slots", f"{found}: with one partition there is nothing to balance", advice)
    if partitions < slots:
        return _wrong("slots", f"{found}: {slots - partitions} of the slots have no work", advice)
    return _right("slots", found)


def _task_slots(spark: Any) -> int:
    context = spark.sparkContext
    try:
        java = context._jsc.sc()
        profile = java.resourceProfileManager().defaultResourceProfile()
        return int(java.maxNumConcurrentTasks(profile))
    except Exception:  # private to Spark: without it, what Spark itself takes for the number of slots
        return int(context.defaultParallelism)


# -- a checkpoint --------------------------------------------------------------------------------------------


def _checkpoint(location: str) -> Iterator[Finding]:
    try:
        found = inspect(location)
        stateful = bool(open_folder(location).entries("state"))
    except CheckpointError as error:
        what, _, remedy = str(error).rpartition(". ")
        yield _wrong("checkpoint", what, remedy)
        return
    if not found.whole:
        for problem in found.problems:
            yield _wrong("checkpoint", problem.rstrip("."), "Restore the file from a copy of the checkpoint.")
    else:
        yield _right("checkpoint", f"of query {found.query_id}, next batch {found.next_batch}")
    if stateful and found.provider is not None:
        yield _frozen_provider(found.provider)
    if stateful and found.shuffle_partitions == 1:
        remedy = "Start the query on a new checkpoint with more spark.sql.shuffle.partitions."
        yield _wrong("partitions", "the query's state lies in 1 partition: nothing to balance", remedy)
    if _unwritable(location):
        remedy = "Give the driver's user the right to write there."
        yield _wrong("rights", f"{location} cannot be written by this user", remedy)


def _frozen_provider(provider: str) -> Finding:
    if provider == PROVIDER:
        return _right("state", f"kept by {provider}")
    adopt = "start it with spark.skewless.adopt=true: Skewless then takes the checkpoint over."
    remedy = {
        "RocksDBStateStoreProvider": f"To balance it, {adopt}",
        "HDFSBackedStateStoreProvider": f"To balance it, stop it, run `skewless convert`, and {adopt}",
    }.get(
        provider.rpartition(".")[2],
        "To balance the query, start it on a new checkpoint in a session that skewless.configure made.",
    )
    return _wrong("state", f"kept by {provider}", remedy)


def _unwritable(location: str) -> bool:
    """Of a local folder; of any other the file system decides when a table is published."""
    if "://" in location and not location.startswith("file:"):
        return False
    root = Path(unquote(urlsplit(location).path) if location.startswith("file:") else location)
    return any(
        folder.exists() and not os.access(folder, os.W_OK | os.X_OK) for folder in (root, root / "_skewless")
    )


# -- small things --------------------------------------------------------------------------------------------


def _lines() -> str:
    return ", ".join(spark_lines())


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _output(command: list[str]) -> str | None:
    """What a command prints, on either stream; None if it does not start or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr
