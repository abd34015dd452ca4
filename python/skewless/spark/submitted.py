"""What spark-submit will be given, read before a JVM runs: PYSPARK_SUBMIT_ARGS, properties files and
spark-defaults.conf, in Spark's own order.

Separate from `session.py` because the command line needs it without Spark. Whatever `configure` sets on a
builder replaces what is written here, so it has to know what that is in order to append to it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from skewless.errors import SettingError

PLUGIN = "io.skewless.SkewlessPlugin"
EXTENSION = "org.apache.spark.sql.skewless.SkewlessExtensions"
PROVIDER = "org.apache.spark.sql.skewless.SkewlessStateStoreProvider"

JARS_KEY = "spark.jars"
PACKAGES_KEY = "spark.jars.packages"
PLUGINS_KEY = "spark.plugins"
EXTENSIONS_KEY = "spark.sql.extensions"
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"

_SWITCHES = {"--help", "-h", "--supervise", "--usage-error", "--verbose", "-v", "--version"}
_LOAD_DEFAULTS = "--load-spark-defaults"
_SHELL = "pyspark-shell"


@dataclass(frozen=True)
class Flags:
    """The flags of a spark-submit command that matter here, and the others as they stand."""

    conf: Mapping[str, str] = field(default_factory=dict)
    jars: str | None = None
    packages: str | None = None
    properties_files: tuple[str, ...] = ()
    extra_files: tuple[str, ...] = ()
    load_defaults: bool = False
    others: tuple[str, ...] = ()
    resource: tuple[str, ...] = ()


def flags_of(words: Sequence[str]) -> Flags:
    """Reads a spark-submit command's flags; `resource` is the first word that is none, and all after it.

    >>> found = flags_of(["--master", "local", "--jars=a.jar", "-c", "spark.plugins=P", "job.py", "-x"])
    >>> found.jars, found.conf, found.others, found.resource
    ('a.jar', {'spark.plugins': 'P'}, ('--master', 'local'), ('job.py', '-x'))
    """
    conf: dict[str, str] = {}
    last: dict[str, str] = {}
    extra: list[str] = []
    others: list[str] = []
    load_defaults, at = False, 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=") if words[at].startswith("--") else (words[at], "", "")
        at += 1
        if name == _LOAD_DEFAULTS or name in _SWITCHES:
            load_defaults = load_defaults or name == _LOAD_DEFAULTS
            others.append(name)
            continue
        if not equals:
            if at == len(words):
                raise SettingError(f"the flag {name} has no value. Give one, or leave the flag out.")
            value, at = words[at], at + 1
        if name in ("--conf", "-c"):
            key, _, setting = value.partition("=")
            conf[key.strip()] = setting
        elif name in ("--jars", "--packages"):
            last[name] = value
            others += [name, value] if name == "--packages" else []
        else:
            if name == "--extra-properties-file":
                extra.append(value)
            last[name] = value
            others += [name, value]
    file = last.get("--properties-file")
    return Flags(
        conf,
        last.get("--jars"),
        last.get("--packages"),
        () if file is None else (file,),
        tuple(extra),
        load_defaults,
        tuple(others),
        tuple(words[at:]),
    )


def settings_of(flags: Flags) -> dict[str, str]:
    """Every setting that spark-submit makes of these flags and its files: --conf first, then extra properties
    files, the properties file, and spark-defaults.conf unless a properties file takes its place."""
    found: dict[str, str] = {}
    if not flags.properties_files or flags.load_defaults:
        default = default_file()
        found |= {} if default is None else properties(default)
    for file in (*flags.properties_files, *flags.extra_files):
        found |= properties(Path(file))
    found |= flags.conf
    if flags.jars is not None:
        found[JARS_KEY] = flags.jars
    if flags.packages is not None:
        found[PACKAGES_KEY] = flags.packages
    return found


def environment_flags() -> Flags:
    """What PYSPARK_SUBMIT_ARGS says, with which pyspark starts its JVM."""
    text = os.environ.get("PYSPARK_SUBMIT_ARGS", _SHELL)
    try:
        return flags_of(shlex.split(text))
    except ValueError as error:
        raise SettingError(
            f"PYSPARK_SUBMIT_ARGS is {text!r}, which no shell can split: {error}. Close its quotes."
        ) from error


def give_jars(jars: str) -> None:
    """Puts --jars into PYSPARK_SUBMIT_ARGS, in the place of what it says of jars now."""
    flags = environment_flags()
    conf = [
        word for key, value in flags.conf.items() if key != JARS_KEY for word in ("--conf", f"{key}={value}")
    ]
    words = ["--jars", jars, *conf, *flags.others, *(flags.resource or (_SHELL,))]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(words)


def appended(present: str | None, *values: str) -> str:
    """A list of Spark's, with commas, and these values behind what is there already; none comes twice.

    >>> appended("a, b", "b", "c"), appended(None, "a")
    ('a,b,c', 'a')
    """
    parts = [part.strip() for part in (present or "").split(",")]
    return ",".join(dict.fromkeys(part for part in [*parts, *values] if part))


def submit_words(flags: Flags, jar: str) -> list[str]:
    """The flags of a command with Skewless switched on. What the command and its files say is kept: lists are
    appended to, a state store provider that is named already stays."""
    present = settings_of(flags)
    ours = {
        PLUGINS_KEY: appended(present.get(PLUGINS_KEY), PLUGIN),
        EXTENSIONS_KEY: appended(present.get(EXTENSIONS_KEY), EXTENSION),
        PROVIDER_KEY: present.get(PROVIDER_KEY) or PROVIDER,
    }
    conf = {key: value for key, value in flags.conf.items() if key != JARS_KEY} | ours
    words = [*flags.others, "--jars", appended(present.get(JARS_KEY), jar)]
    words += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    return [*words, *flags.resource]


def kept_out(provider: str, where: str) -> str:
    """What to tell a user whose own state store provider keeps Skewless out of stateful queries."""
    return (
        f"{PROVIDER_KEY} is {provider} in {where}, and it is kept: new stateful queries keep their state "
        "with it, and Skewless cannot balance them. Remove the setting to let Skewless set its own provider "
        "(Spark's RocksDB provider, whose keys can move); a query takes its provider at its first start, and "
        "spark.skewless.adopt=true takes over those that Spark's RocksDB provider keeps."
    )


# -- properties files ----------------------------------------------------------------------------------------


def default_file() -> Path | None:
    """The spark-defaults.conf that spark-submit reads, if there is one."""
    if folder := os.environ.get("SPARK_CONF_DIR"):
        file = Path(folder) / "spark-defaults.conf"
    elif (home := spark_home()) is not None:
        file = home / "conf" / "spark-defaults.conf"
    else:
        return None
    return file if file.is_file() else None


def spark_home() -> Path | None:
    """SPARK_HOME, or the Spark inside the installed pyspark."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@dataclass(frozen=True)
class SparkRelease:
    """What a Spark distribution says of itself."""

    version: str
    scala: str


def spark_release(home: Path) -> SparkRelease | None:
    """The Spark in a folder, by the name of its core jar; None if there is none."""
    for jar in sorted((home / "jars").glob("spark-core_*.jar")):
        if match := re.fullmatch(r"spark-core_(?P<scala>[^-]+)-(?P<version>.+)\.jar", jar.name):
            return SparkRelease(match["version"], match["scala"])
    return None


def properties(file: Path) -> dict[str, str]:
    """The spark.* settings of a file in Java's properties format."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"the settings in {file} cannot be read: {error}. Correct the file.") from error
    return {key: value for key, value in parsed(text).items() if key.startswith("spark.")}


def parsed(text: str) -> dict[str, str]:
    r"""Java's properties format: a key ends at white space, = or :, a backslash carries a line on.

    >>> parsed("# a comment\nspark.plugins  P,\\\n   Q\nspark.jars=a.jar \nspark.x:1\n\n!no")
    {'spark.plugins': 'P,Q', 'spark.jars': 'a.jar', 'spark.x': '1'}
    """
    found: dict[str, str] = {}
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        whole = line.lstrip(" \t\f")
        if whole in ("", "\\") or whole[0] in "#!":
            continue
        while _carries_on(whole):
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        match = _LINE.match(whole)
        assert match is not None  # every part of the pattern may be empty
        found[_unescaped(match["key"])] = _unescaped(match["value"]).strip()
    return found


_LINE = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _carries_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match["code"]:
            return chr(int(match["code"], 16))
        return _ESCAPES.get(match["one"], match["one"])

    return re.sub(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<one>.?))", plain, text)
