"""Puts the jar into the wheel; an editable install finds it in the sbt output instead."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        release = (Path(self.root) / "VERSION").read_text().strip()
        jars = sorted(
            (Path(self.root) / "jvm" / "target" / "scala-2.13").glob(f"skewless-spark-*_2.13-{release}.jar")
        )
        if not jars:
            raise FileNotFoundError(
                f"no jar of version {release} in jvm/target/scala-2.13. Run `make jar` before building the "
                "wheel."
            )
        for jar in jars:
            build_data["force_include"][str(jar)] = f"skewless/jars/{jar.name}"
