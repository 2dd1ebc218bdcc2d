"""Libraries that are called eagerly, with a batch of tensors."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from bench.peers.held_tables import HeldTables


class EagerTables(HeldTables):
    """Calls rotate over the batches of each kind of bags."""

    _batches: Sequence[Sequence[Any]]
    _rotations: Sequence[itertools.cycle]

    def _set_batches(self, batches: Sequence[Sequence[Any]]) -> None:
        """Sets the batches of each kind of bags, in the form that `_forward` and `_step` take."""
        self._batches = batches
        self._rotations = [itertools.cycle(kind) for kind in batches]

    def _first(self, bags: int) -> Any:
        return self._batches[bags][0]

    @abc.abstractmethod
    def _forward(self, batch: Any) -> Any:
        """A lookup outside of training."""

    @abc.abstractmethod
    def _step(self, batch: Any) -> None:
        """A whole training step."""

    def call(self, bags: int, what: str) -> Callable[[], object]:
        """See HeldTables."""
        run = {"forward": self._forward, "step": self._step}[what]
        return lambda: run(next(self._rotations[bags]))

    def train(self, bags: int) -> None:
        """See HeldTables."""
        for batch in self._batches[bags]:
            self._step(batch)
