"""Puts the jar of each Spark line and the conf file into the wheel; an editable install finds them in the
checkout instead."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        release = (Path(self.root) / "VERSION").read_text().strip()
        lines = (Path(self.root) / "python" / "skewless" / "spark" / "lines.txt").read_text().splitlines()
        for line in (text.split()[0] for text in lines if text and not text.startswith("#")):
            name = f"skewless-spark-{line}_2.13-{release}.jar"
            jar = Path(self.root) / "jvm" / "target" / "scala-2.13" / name
            if not jar.exists():
                raise FileNotFoundError(f"{jar} is missing. Run `make jars` before building the wheel.")
            build_data["force_include"][str(jar)] = f"skewless/jars/{name}"
        conf = Path(self.root) / "conf" / "skewless.conf"
        build_data["force_include"][str(conf)] = "skewless/conf/skewless.conf"
