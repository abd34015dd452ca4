"""Where the jar is: inside the installed package, or in the sbt output of a source checkout.

Apart from `session.py` because the command line needs it without Spark.
"""

from importlib import resources
from pathlib import Path

from skewless.errors import SessionError

SPARK_LINE = "4.2"


def jar_path() -> Path:
    """The jar for the Spark line that this release serves."""
    for folder in (_packaged(), _checkout()):
        jars = sorted(folder.glob(f"skewless-spark-{SPARK_LINE}_2.13-*.jar")) if folder.is_dir() else []
        jars = [jar for jar in jars if not jar.stem.endswith(("-tests", "-sources", "-javadoc"))]
        if jars:
            return jars[-1].resolve()
    raise SessionError(
        f"the Skewless jar for Spark {SPARK_LINE} is neither in the package nor in jvm/target. Install a "
        "built wheel, or run "
        "`make jar` in the checkout."
    )


def _packaged() -> Path:
    return Path(str(resources.files("skewless"))) / "jars"


def _checkout() -> Path:
    return Path(__file__).resolve().parents[3] / "jvm" / "target" / "scala-2.13"
