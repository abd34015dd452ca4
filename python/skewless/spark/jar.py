"""Where the jar and the conf file are: inside the installed package, or in a source checkout.

Separate from `session.py` because the command line needs it without Spark.
"""

from importlib import resources
from pathlib import Path

from skewless.errors import SessionError, VersionError
from skewless.spark.submitted import spark_home, spark_release


def spark_lines() -> dict[str, str]:
    """The Spark lines that this release serves, oldest first, with the version each jar is compiled for."""
    text = resources.files("skewless.spark").joinpath("lines.txt").read_text()
    rows = [row.split() for row in text.splitlines() if row and not row.startswith("#")]
    return {row[0]: row[1] for row in rows}


NEWEST_LINE = list(spark_lines())[-1]


def line_of(version: str) -> str | None:
    """The line of a Spark version; None if this release does not serve it.

    >>> line_of("4.2.1"), line_of("4.1.0")
    ('4.2', None)
    """
    return next((line for line in spark_lines() if version.startswith(f"{line}.")), None)


def running_line() -> str:
    """The line of the Spark that a session here, or spark-submit, would start."""
    home = spark_home()
    release = None if home is None else spark_release(home)
    if release is None:
        raise SessionError(
            f"there is no Spark here for which to choose a jar{'' if home is None else f', in {home}'}. "
            "Install one (pip install 'skewless[spark]'), or name its line: skewless jar-path --spark "
            f"{NEWEST_LINE}."
        )
    line = line_of(release.version)
    if line is None:
        raise VersionError(
            f"this release of Skewless serves Spark {', '.join(spark_lines())}, and the Spark in {home} is "
            f"{release.version}. Use a Spark that it serves; if SPARK_HOME names another, unset it."
        )
    return line


def jar_path(line: str | None = None) -> Path:
    """The jar for a Spark line that this release serves; without one, for the Spark that would start here."""
    line = running_line() if line is None else line
    for folder in (_packaged(), _checkout()):
        jars = sorted(folder.glob(f"skewless-spark-{line}_2.13-*.jar")) if folder.is_dir() else []
        jars = [jar for jar in jars if not jar.stem.endswith(("-tests", "-sources", "-javadoc"))]
        if jars:
            return jars[-1].resolve()
    raise SessionError(
        f"the Skewless jar for Spark {line} is neither in the package nor in jvm/target. Install a built "
        "wheel, or run `make jars` in the checkout."
    )


def conf_path() -> Path:
    """The properties file that switches Skewless on."""
    packaged, checkout = (root / "conf" / "skewless.conf" for root in (_package(), _ROOT))
    found = packaged if packaged.is_file() else checkout
    if not found.is_file():
        raise SessionError(
            "skewless.conf is neither in the package nor in the checkout. Install a built wheel, or use the "
            "flags that `skewless submit-args` prints."
        )
    return found.resolve()


_ROOT = Path(__file__).resolve().parents[3]


def _package() -> Path:
    return Path(str(resources.files("skewless")))


def _packaged() -> Path:
    return _package() / "jars"


def _checkout() -> Path:
    return _ROOT / "jvm" / "target" / "scala-2.13"
