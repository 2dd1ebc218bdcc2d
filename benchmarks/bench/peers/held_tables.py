"""The interface that every library's module implements."""

from __future__ import annotations

import abc
from collections.abc import Callable

import numpy as np

from bench.peers.job import Job


class HeldTables(abc.ABC):
    """One library's tables with a job's rows, and lookups and training steps with the job's ids."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @abc.abstractmethod
    def call(self, bags: int, what: str) -> Callable[[], object]:
        """A function that runs `what`, "forward" or "step", on the next batch of the kind `bags` of bags."""

    @abc.abstractmethod
    def outputs(self, bags: int) -> list[np.ndarray]:
        """The outputs of the first batch, float32 [bags, dim] for each feature."""

    @abc.abstractmethod
    def train(self, bags: int) -> None:
        """Trains one step on each batch, starting with the first."""
