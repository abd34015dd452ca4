"""W-Choices: the few most frequent keys may go to every worker; the rest keep two.

Nasir, De Francisci Morales, Kourtellis, Serafini: "When Two Choices Are Not Enough: Balancing at Scale in
Distributed Stream Processing" (ICDE 2016), section IV. D-Choices with d = n for the head; what the head is,
and what we know of the paper, stands there.
"""

from skewless.simulate.schemes.d_choices import DChoices


class WChoices(DChoices):
    """The head may go to every worker."""

    all_workers = True
