"""Our hash tables, all looked up as one group."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

import sparse_operation_kit as sok
from bench.inputs import FeatureTensors
from bench.peers.session_tables import SessionTables
from bench.sides import SokSide
from bench.targets import Targets


class Tables(SessionTables):
    """See HeldTables."""

    def _prepare(self) -> None:
        job = self.job
        self._session.run(sok.Init(global_batch_size=job.batch, seed=job.seed))
        self._side = SokSide(job.tables)
        self._rows = tf.compat.v1.placeholder(tf.float32, [job.tables.rows_per_table, job.tables.dim])
        saver = sok.Saver()
        self._assign = [saver.load_embedding_values(table, self._rows) for table in self._side.variables]

    def _make_targets(
        self, one_hot: bool, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor]
    ) -> Targets:
        return self._side.targets("gather" if one_hot else "sparse", features, gradients)

    def _fill(self, feature: int) -> None:
        self._session.run(self._assign[feature], {self._rows: self.job.rows(feature)})
