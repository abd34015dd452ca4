"""Where the jar and the conf file are: inside the installed package, or in a source checkout.

Separate from `session.py` because the command line needs it without Spark.
"""

from importlib import resources
from pathlib import Path

from skewless.errors import SessionError


def spark_lines() -> dict[str, str]:
    """The Spark lines that this release serves, oldest first, with the version each jar is compiled for."""
    text = resources.files("skewless.spark").joinpath("lines.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split(" ", 1) for line in lines)


SPARK_LINE = list(spark_lines())[-1]


def jar_path(line: str = SPARK_LINE) -> Path:
    """The jar for a Spark line that this release serves."""
    for folder in (_packaged(), _checkout()):
        jars = sorted(folder.glob(f"skewless-spark-{line}_2.13-*.jar")) if folder.is_dir() else []
        jars = [jar for jar in jars if not jar.stem.endswith(("-tests", "-sources", "-javadoc"))]
        if jars:
            return jars[-1].resolve()
    raise SessionError(
        f"the Skewless jar for Spark {line} is neither in the package nor in jvm/target. Install a built "
        "wheel, or run `make jar` in the checkout."
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
