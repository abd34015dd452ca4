"""Key grouping: hash mod n. What Spark, Storm ("fields grouping", FG) and the papers' baseline H do.

PKG paper, section 2.1; it is the reference for memory, as each key has one state.
"""

from __future__ import annotations

import numpy as np

from skewless.simulate.compiled import Int32s
from skewless.simulate.schemes.scheme import Scheme


class KeyGrouping(Scheme):
    """Every tuple of a key goes to the same worker, whatever the load."""

    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        return self.alive[hashes.astype(np.int64) % len(self.alive)]
