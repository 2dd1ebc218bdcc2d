"""The part of the data that a rank reads."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Share:
    """Every `ranks`-th sample, starting with number `rank`, of samples in the same order on all ranks.

    The shares are disjoint and cover all samples, without communication between ranks.
    """

    rank: int = 0
    ranks: int = 1


WHOLE = Share()
