"""What every library's module implements."""

from __future__ import annotations

import abc
from collections.abc import Callable

import numpy as np

from bench.peers.job import Job


class HeldTables(abc.ABC):
    """One library's tables, filled with a job's rows, and its lookups and training steps on a job's ids."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @abc.abstractmethod
    def call(self, bags: int, what: str) -> Callable[[], object]:
        """What makes one call of `what`, "forward" or "step", with the next batch of bags number `bags`."""

    @abc.abstractmethod
    def outputs(self, bags: int) -> list[np.ndarray]:
        """The outputs of the first batch, float32 [bags, dim] for each feature."""

    @abc.abstractmethod
    def train(self, bags: int) -> None:
        """One step with each batch, from the first one on."""
