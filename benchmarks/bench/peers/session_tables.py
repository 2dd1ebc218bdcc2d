"""Libraries whose tables are in a TensorFlow graph."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from bench.inputs import FeatureTensors, RotatingBatches
from bench.peers.held_tables import HeldTables
from bench.peers.job import Job
from bench.session_config import session_config
from bench.targets import Targets


class SessionTables(HeldTables):
    """Tables in a graph with one session; batches rotate inside the graph."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        with tf.Graph().as_default() as graph:
            self._session = tf.compat.v1.Session(graph=graph, config=session_config(job.threads))
            self._prepare()
            gradients = [job.gradients(feature) for feature in range(job.tables.features)]
            self._rotations = [RotatingBatches(batches, gradients) for batches in job.batch_sets()]
            self._targets = [
                self._make_targets(bags.hotness == 1, rotation.features, rotation.constants)
                for bags, rotation in zip(job.bags, self._rotations)
            ]
            self._session.run(tf.compat.v1.global_variables_initializer())
            for feature in range(job.tables.features):
                self._fill(feature)
            graph.finalize()
        for rotation in self._rotations:
            rotation.restart(self._session)

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Makes the tables. The graph is the default one; `self._session` runs it."""

    @abc.abstractmethod
    def _make_targets(
        self, one_hot: bool, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor]
    ) -> Targets:
        """Makes lookups, and steps that train with `gradients` of the outputs."""

    @abc.abstractmethod
    def _fill(self, feature: int) -> None:
        """Fills a feature's table with the job's rows."""

    def call(self, bags: int, what: str) -> Callable[[], object]:
        """See HeldTables."""
        return self._session.make_callable(list(getattr(self._targets[bags], what)))

    def outputs(self, bags: int) -> list[np.ndarray]:
        """See HeldTables."""
        self._rotations[bags].restart(self._session)
        return self._session.run(list(self._targets[bags].outputs))

    def train(self, bags: int) -> None:
        """See HeldTables."""
        self._rotations[bags].restart(self._session)
        for _ in range(self.job.batches):
            self._session.run(list(self._targets[bags].step))
