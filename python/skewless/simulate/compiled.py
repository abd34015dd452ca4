"""The one door to numba, and the array types of the simulator.

Separate from the loops it compiles so that numba stays an extra: without it the simulator says what to
install.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from skewless.errors import SettingError

try:
    from numba import njit
except ImportError as error:
    raise SettingError(
        "The simulator compiles its loops with numba, which is missing. Install skewless[simulate]."
    ) from error

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

Result = TypeVar("Result")


def compiled(loop: Callable[..., Result]) -> Callable[..., Result]:
    """Compiles a loop over arrays. The machine code is kept on disk, so that only the first run waits."""
    made: Any = njit(cache=True, nogil=True)(loop)
    try:
        made._cache._cache_file._source_stamp = _sources_stamp()
    except AttributeError:  # another numba: rather slow than wrong
        made = njit(nogil=True)(loop)
    return cast(Callable[..., Result], made)


def leaf(step: Callable[..., Result]) -> Callable[..., Result]:
    """Compiles a step that neither makes arrays nor calls another compiled function, without counting
    references: to count those of four arrays takes as long as the step. (numba has no public name for this
    option.)"""
    options: Any = {"nogil": True, "_nrt": False}
    return cast(Callable[..., Result], njit(**options)(step))


def inlined(step: Callable[..., Result]) -> Callable[..., Result]:
    """Compiles a step into each loop that calls it: to hand over a few arrays costs more than most steps
    do."""
    return cast(Callable[..., Result], njit(nogil=True, inline="always")(step))


@cache
def _sources_stamp() -> str:
    """What the machine code was made from: all of the simulator, and the formulas that it shares with Spark.
    Numba itself looks only at the file of the loop, and would go on using a loop that was compiled together
    with an older version of what it calls in another file."""
    digest, here = hashlib.sha256(), Path(__file__).parent
    for folder in (here, here.parent / "policies" / "splits"):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
