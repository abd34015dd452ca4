"""The one range of all seeds.

Separate from streams and cluster because both take a seed, and both shift it into numbers of 64 bits.
"""

from __future__ import annotations

import numpy as np

from skewless.errors import SettingError

MOST = (1 << 31) - 1


def check_seed(seed: int) -> int:
    """The seed, if it is one.

    >>> check_seed(7)
    7
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed <= MOST:
        raise SettingError(f"seed {seed!r}: give a whole number from 0 to {MOST}.")
    return int(seed)
