"""Which part of the data a rank reads."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Share:
    """Of samples that all ranks bring into the same order, every `ranks`-th, beginning with number `rank`.

    So the ranks' shares are disjoint, together they are everything, and no rank has to ask another.
    """

    rank: int = 0
    ranks: int = 1


WHOLE = Share()
