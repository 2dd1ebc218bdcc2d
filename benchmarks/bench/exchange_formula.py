"""The bytes that the three exchanges of a step send, by the formula in docs/design.md."""

from __future__ import annotations

import numpy as np

from bench.ids import Batch

_WORD = 8
_HEADER = 4  # words of every message
_PER_TABLE = 4  # words per table in a request


def bytes_sent(by_rank: list[list[Batch]], rank: int, dim: int) -> float:
    """Bytes that rank `rank` sends to other ranks in a step, on average over its batches.

    Args:
      by_rank: The batches of each rank; step i looks up batch i of every rank.
      rank: The sending rank.
      dim: Floats per row.
    """
    steps = list(zip(*by_rank))
    return float(np.mean([_bytes_of_step(step, rank, dim) for step in steps]))


def _bytes_of_step(batches: tuple[Batch, ...], rank: int, dim: int) -> int:
    ranks, tables = len(batches), len(batches[0])
    words = 0
    for other in range(ranks):
        if other == rank:
            continue
        asked = _distinct(batches[rank], other, ranks)  # ids that this rank requests from the other
        served = _distinct(batches[other], rank, ranks)  # ids that the other requests from this rank
        words += _HEADER + _PER_TABLE * tables + asked
        words += _HEADER + _words_of_floats(served * dim)
        words += _HEADER + 1 + _words_of_floats(asked * dim)
    return words * _WORD


def _distinct(batch: Batch, owner: int, ranks: int) -> int:
    return sum(int(np.count_nonzero(np.unique(bags.ids) % ranks == owner)) for bags in batch)


def _words_of_floats(floats: int) -> int:
    return (floats + 1) // 2
