"""fbgemm_gpu's table-batched embeddings on the CPU: one op for all features, which trains in its backward."""

from __future__ import annotations

import fbgemm_gpu  # noqa: F401  # registers the ops
import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from bench import ids
from bench.peers.eager_tables import EagerTables
from bench.peers.job import Job

LEARNING_RATE = 0.001
INITIAL_ACCUMULATOR = 0.1  # as in the other libraries

_OPTIMIZERS = {
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "sgd": EmbOptimType.EXACT_SGD,
}

_Batch = tuple[torch.Tensor, torch.Tensor]  # ids of all features, and the offsets of all bags


class Tables(EagerTables):
    """See HeldTables."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        torch.set_num_threads(job.threads)
        tables = job.tables
        specification = (tables.rows_per_table, tables.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)
        self._tables = SplitTableBatchedEmbeddingBagsCodegen(
            [specification] * tables.features,
            optimizer=_OPTIMIZERS[tables.optimizer],
            learning_rate=LEARNING_RATE,
            eps=1e-7 if tables.optimizer == "rowwise_adagrad" else 0.0,
            pooling_mode=PoolingMode.MEAN,
            output_dtype=SparseType.FP32,
        )
        for feature, weights in enumerate(self._tables.split_embedding_weights()):
            weights.copy_(torch.from_numpy(job.rows(feature)))
        if tables.optimizer != "sgd":
            for (accumulator,) in self._tables.split_optimizer_states():
                accumulator.fill_(INITIAL_ACCUMULATOR)
        gradients = [job.gradients(feature) for feature in range(tables.features)]
        self._gradient = torch.from_numpy(np.concatenate(gradients, axis=1))
        self._set_batches([[_as_tensors(batch) for batch in batches] for batches in job.batch_sets()])

    def outputs(self, bags: int) -> list[np.ndarray]:
        """See HeldTables."""
        return np.split(self._forward(self._first(bags)).numpy(), self.job.tables.features, axis=1)

    def _forward(self, batch: _Batch) -> torch.Tensor:
        with torch.no_grad():
            return self._tables(*batch)

    def _step(self, batch: _Batch) -> None:
        self._tables(*batch).backward(self._gradient)


def _as_tensors(batch: ids.Batch) -> _Batch:
    begins, offsets = 0, []
    for feature in batch:
        offsets.append(feature.offsets[:-1] + begins)
        begins += feature.ids.size
    offsets.append(np.array([begins]))
    all_ids = np.concatenate([feature.ids for feature in batch])
    return torch.from_numpy(all_ids), torch.from_numpy(np.concatenate(offsets))
