"""Whether swaps pay in time, and how long a query is left alone where they did not.

Separate from the controller, which weighs a swap before it is made: this is the account of those that were.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_REST = 16  # batches
LONGEST_REST = 1024
PATIENCE = 2  # losses in a row


@dataclass
class Payback:
    """One account per swap, in seconds: what its batches saved, less the pause, less what they took longer
    than the clock says. After two losses in a row no swap is made for 16 batches; after each further loss for
    twice as many. A swap that pays ends the series.

    >>> payback = Payback()
    >>> for batch in (3, 5):
    ...     payback.swapped(batch, pause=1.0)
    ...     payback.add(saved=0.2, late=-0.1)     # sooner than predicted is no gain
    >>> payback.rest_until, payback.why(10)
    (22, 'left alone until batch 22: the last 2 swaps lost 1.6 s')
    >>> payback.swapped(23, pause=0.1)
    >>> payback.add(saved=0.5, late=0.0)
    >>> payback.losses, payback.why(24)
    (0, '')
    """

    swapped_at: int = -1
    closed_losses: int = 0
    closed_lost: float = 0.0
    saved: float = 0.0
    late: float = 0.0

    def swapped(self, batch: int, pause: float) -> None:
        """A swap came into force with this batch: the account before it is closed."""
        self.closed_lost, self.closed_losses = self.lost, self.losses
        self.swapped_at, self.saved, self.late = batch, -max(0.0, pause), 0.0

    def add(self, saved: float, late: float) -> None:
        """A batch under the last swap's table saved so many seconds against the table before, and took `late`
        seconds longer than predicted."""
        if self.swapped_at >= 0:
            self.saved += saved
            self.late += late

    @property
    def balance(self) -> float:
        return self.saved - max(0.0, self.late)

    @property
    def losses(self) -> int:
        """Swaps in a row, up to the last, that have not paid."""
        return self.closed_losses + 1 if self.swapped_at >= 0 and self.balance <= 0 else 0

    @property
    def lost(self) -> float:
        """Seconds that they lost together."""
        return self.closed_lost - self.balance if self.losses else 0.0

    @property
    def rest_until(self) -> int:
        """The first batch that may have a swap again."""
        if self.losses < PATIENCE:
            return 0
        return self.swapped_at + 1 + min(LONGEST_REST, FIRST_REST << (self.losses - PATIENCE))

    def why(self, batch: int) -> str:
        """Why the query is left alone in this batch; empty if it is not."""
        if batch >= self.rest_until:
            return ""
        return (
            f"left alone until batch {self.rest_until}: the last {self.losses} swaps lost {self.lost:.1f} s"
        )
