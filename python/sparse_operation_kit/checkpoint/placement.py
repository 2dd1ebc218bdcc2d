"""The placement of a saved table's rows on its shards; the counterpart of `cc/placement`."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

BY_KEY = "by_key"
_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_ONE_RANK = re.compile(rf"one_rank:({_NUMBER})")
_RANGES = re.compile(rf"ranges:({_NUMBER}(?:,{_NUMBER})*)")


@dataclass(frozen=True)
class Placement:
    """A placement of keys on shards.

    Attributes:
      kind: "by_key", "one_rank", "all_ranks" or "ranges".
      shards: The number of shards.
      rank: For "one_rank", the shard with all rows.
      boundaries: For "ranges", shard s has the keys [boundaries[s], boundaries[s + 1]).
    """

    kind: str
    shards: int
    rank: int = 0
    boundaries: tuple[int, ...] = ()

    def owner(self, keys: np.ndarray) -> np.ndarray:
        """Returns the shard of each of the int64 `keys`, as int64; for replicas the first shard."""
        keys = keys.view(np.uint64)
        if self.kind == "by_key":
            return (keys % np.uint64(self.shards)).astype(np.int64)
        if self.kind == "ranges":
            inner = np.array(self.boundaries[1:-1], np.uint64)
            return np.searchsorted(inner, keys, side="right").astype(np.int64)
        return np.full(keys.shape, self.rank, np.int64)

    def static_keys(self, capacity: int) -> int:
        """Returns the number of keys of a table without hashing; its keys are [0, static_keys)."""
        if self.kind == "ranges":
            return self.boundaries[-1]
        return capacity * (self.shards if self.kind == "by_key" else 1)

    def static_rows(self, shard: int, capacity: int) -> int:
        """Returns the number of rows in a shard of a table without hashing."""
        if self.kind == "by_key":
            return capacity
        if self.kind == "ranges":
            return self.boundaries[shard + 1] - self.boundaries[shard]
        return capacity if shard == self.rank else 0


def parse(text: str, shards: int) -> Placement:
    """Parses a placement string of `cc/placement`.

    Raises:
      ValueError: The string is not a placement, or not one for this number of shards.
    """
    if text in (BY_KEY, "all_ranks"):
        return Placement(text, shards)
    one_rank, ranges = _ONE_RANK.fullmatch(text), _RANGES.fullmatch(text)
    if one_rank and int(one_rank.group(1)) < shards:
        return Placement("one_rank", shards, rank=int(one_rank.group(1)))
    if ranges:
        boundaries = tuple(int(number) for number in ranges.group(1).split(","))
        if len(boundaries) == shards + 1 and boundaries[0] == 0 and boundaries[-1] < 2**63:
            if list(boundaries) == sorted(boundaries):
                return Placement("ranges", shards, boundaries=boundaries)
    raise ValueError(f"placement is {text[:200]!r}, which is not valid for {shards} shards")
