"""A model of what a step of a worker costs each parameter server, and of how many servers a job needs.

A step asks each server for rows with one message, gets them with one, and pushes gradients with one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

_WORD, _HEADER, _PER_TABLE, _FLOAT = 8, 4, 4, 4
# Of tensors between a worker and a server for a step: ids, rows and gradients.
MESSAGES = 3
# The most of a server's link, processors or locks that a job may use. Above it, waiting dominates.
_USABLE = 0.7
MOST_SERVERS = 1000


class Load(NamedTuple):
    """What a step asks of one server: tables, floats of a row, and distinct ids of all tables together."""

    tables: int
    dim: int
    ids: float

    @property
    def bytes_in(self) -> float:
        """Bytes of ids and gradients."""
        ids = _WORD * (_HEADER + _PER_TABLE * self.tables + self.ids)
        return ids + _WORD * (_HEADER + 1) + self._bytes_of_rows

    @property
    def bytes_out(self) -> float:
        """Bytes of rows."""
        return _WORD * _HEADER + self._bytes_of_rows

    @property
    def _bytes_of_rows(self) -> float:
        return _FLOAT * self.dim * self.ids

    @property
    def terms(self) -> list[float]:
        """What the costs are multiplied with, in the order of `Costs`."""
        return [MESSAGES, self.tables, self.ids, self.bytes_in + self.bytes_out]


@dataclasses.dataclass(frozen=True)
class Costs:
    """Milliseconds for each message, each table, each id and each byte of a step."""

    message: float
    table: float
    id: float
    byte: float

    @classmethod
    def fitted(cls, loads: Sequence[Load], measured: Sequence[float]) -> Costs:
        """The costs, none negative, with the least sum of squares of relative errors."""
        terms = np.array([load.terms for load in loads]) / np.array(measured)[:, None]
        kept = list(range(terms.shape[1]))
        while True:
            found = np.linalg.lstsq(terms[:, kept], np.ones(len(measured)), rcond=None)[0]
            if (found >= 0).all():
                costs = np.zeros(terms.shape[1])
                costs[kept] = found
                return cls(*map(float, costs))
            kept.pop(int(np.argmin(found * terms[:, kept].mean(axis=0))))

    def of(self, load: Load) -> float:
        """Milliseconds of a step on the server."""
        return float(np.dot(load.terms, dataclasses.astuple(self)))


class Server(NamedTuple):
    """A machine: cores, and bits per second in each direction of its link."""

    cores: int
    link: float


def usage(load: Load, steps: float, processor: Costs, locked: Costs, server: Server) -> dict[str, float]:
    """What `steps` steps a second use of a server, as shares, by what may bound it."""
    return {
        "network": steps * max(load.bytes_in, load.bytes_out) * 8 / server.link,
        "processor": steps * processor.of(load) * 1e-3 / server.cores,
        "locks": steps * locked.of(load) * 1e-3,
    }


def servers_needed(used: Callable[[int], dict[str, float]]) -> tuple[int | None, str]:
    """The fewest servers of which a job uses no more than it may, and what bounds them.

    Args:
      used: The `usage` of each of so many servers.

    Returns:
      The number, None if more servers do not help, and what is used most.
    """
    for number in range(1, MOST_SERVERS + 1):
        shares = used(number)
        if max(shares.values()) <= _USABLE:
            # What one server less would have too much of.
            before = used(max(1, number - 1))
            return number, max(before, key=before.__getitem__)
    return None, max(shares, key=shares.__getitem__)
