"""A page of evidence: text, tables, plots and claims, written as Markdown.

A claim carries its own test: the page says *agrees* or *refuted* from the figures of this very run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from skewless.simulate import Cluster, ParquetStream, Result, Stream, in_memory, simulate, zipf
from skewless.simulate.plots import Points, dots, panels
from skewless.simulate.schemes.scheme import Scheme
from skewless.simulate.streams.generators import zipf_shares
from skewless.simulate.streams.stream import Numbered

Key = TypeVar("Key")


@dataclass
class Page:
    """What is written goes to `<folder>/<name>.md`; plots lie beside it."""

    name: str
    folder: Path
    command: str
    lines: list[str] = field(default_factory=list)
    verdicts: list[bool] = field(default_factory=list)

    def text(self, *paragraphs: str) -> None:
        for paragraph in paragraphs:
            self.lines += [paragraph, ""]

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        self.lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        self.lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
        self.lines += ["", f"`{self.command}`", ""]

    def plot(
        self, name: str, curves: Mapping[str, Mapping[str, Points]], x: str, y: str, **options: bool
    ) -> None:
        file = f"{self.name}-{name}.svg"
        panels(self.folder / file, curves, x, y, **options)  # type: ignore[arg-type]
        self.lines += [f"![{y} against {x}]({file})", "", f"`{self.command}`", ""]

    def dots(
        self, name: str, rows: Sequence[str], marks: Mapping[str, Mapping[str, Sequence[float]]], x: str
    ) -> None:
        file = f"{self.name}-{name}.svg"
        dots(self.folder / file, rows, marks, x)
        self.lines += [f"![{x}]({file})", "", f"`{self.command}`", ""]

    def claim(self, holds: bool, claim: str, found: str, *, partly: bool = False, same: bool = True) -> None:
        """What a paper says, whether our run bears it out, and what we measured.

        `partly`: the direction holds, though not the paper's number. If the set-up is not the `same` (other
        data, a simulated cluster), a claim that does not hold is not refuted, only not reproduced.
        """
        self.verdicts.append(bool(holds))
        verdict = (
            "Agrees" if holds else "Agrees in part" if partly else "Refuted" if same else "Not reproduced"
        )
        self.lines += [f"**{verdict}.** Claim: {claim} Ours: {found}", ""]

    def write(self) -> Path:
        path = self.folder / f"{self.name}.md"
        path.write_text("\n".join(self.lines).rstrip() + "\n")
        return path


def run_all(jobs: Mapping[Key, tuple[Stream, str | Scheme, Cluster]], threads: int = 2) -> dict[Key, Result]:
    """Every run; two at a time, since the loops leave the interpreter to others."""
    with ThreadPoolExecutor(threads) as pool:
        done = pool.map(lambda job: simulate(*job), jobs.values())
        return dict(zip(jobs, done, strict=True))


def zipf_with_share(tuples: int, keys: int, share: float, label: str) -> Numbered:
    """A Zipf stream whose hottest key has this share: a stand-in for a stream that cannot be had."""
    low, high = 0.0, 5.0
    for _ in range(40):
        z = (low + high) / 2
        low, high = (z, high) if zipf_shares(keys, z)[0] < share else (low, z)
    stream = in_memory(zipf(tuples, keys, z))
    stream.label = f"{label} (Zipf z={z:.2f}, K={keys:,})"
    return stream


def real(data: Path | None, name: str, column: str = "key") -> Numbered | None:
    """A shared stream, if the folder was given and has it."""
    if data is None or not (data / f"{name}.parquet").exists():
        return None
    stream = in_memory(ParquetStream(data / f"{name}.parquet", column))
    stream.label = name.replace("_", " ")
    return stream


def share_of_hottest(stream: Stream) -> float:
    counts = stream.counts()
    return float(counts.max() / counts.sum())


def short(number: float) -> str:
    return f"{number:.1e}"


Build = Callable[[Page, Path | None], None]
