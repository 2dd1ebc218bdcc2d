"""TensorFlow's own variables and ops."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from bench.inputs import FeatureTensors
from bench.peers.session_tables import SessionTables
from bench.sides import TensorFlowSide
from bench.targets import Targets


class Tables(SessionTables):
    """See HeldTables."""

    def _prepare(self) -> None:
        self._side = TensorFlowSide(self.job.tables)

    def _make_targets(
        self, one_hot: bool, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor]
    ) -> Targets:
        return self._side.targets("gather" if one_hot else "sparse", features, gradients)

    def _fill(self, feature: int) -> None:
        self._side.variables[feature].load(self.job.rows(feature), self._session)
