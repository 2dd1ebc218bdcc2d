"""torch.nn.EmbeddingBag with sparse gradients, a table for each feature."""

from __future__ import annotations

import numpy as np
import torch

from bench import ids
from bench.peers.eager_tables import EagerTables
from bench.peers.job import Job

LEARNING_RATE = 0.001

_OPTIMIZERS = {
    "lazy_adam": lambda weights: torch.optim.SparseAdam(weights, LEARNING_RATE),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, LEARNING_RATE, initial_accumulator_value=0.1),
    "sgd": lambda weights: torch.optim.SGD(weights, LEARNING_RATE),
}

_Batch = list[tuple[torch.Tensor, torch.Tensor]]  # for each feature, ids and the offsets of bags


class Tables(EagerTables):
    """See HeldTables."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        torch.set_num_threads(job.threads)
        self._bags = [
            torch.nn.EmbeddingBag.from_pretrained(
                torch.from_numpy(job.rows(feature)), freeze=False, mode="mean", sparse=True
            )
            for feature in range(job.tables.features)
        ]
        self._optimizer = _OPTIMIZERS[job.tables.optimizer]([bag.weight for bag in self._bags])
        self._gradients = [torch.from_numpy(job.gradients(feature)) for feature in range(job.tables.features)]
        self._set_batches([[_as_tensors(batch) for batch in batches] for batches in job.batch_sets()])

    def outputs(self, bags: int) -> list[np.ndarray]:
        """See HeldTables."""
        return [output.numpy() for output in self._forward(self._first(bags))]

    def _forward(self, batch: _Batch) -> list[torch.Tensor]:
        with torch.no_grad():
            return self._look_up(batch)

    def _step(self, batch: _Batch) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(self._look_up(batch), self._gradients)
        self._optimizer.step()

    def _look_up(self, batch: _Batch) -> list[torch.Tensor]:
        return [bag(*feature) for bag, feature in zip(self._bags, batch)]


def _as_tensors(batch: ids.Batch) -> _Batch:
    return [
        (torch.from_numpy(feature.ids), torch.from_numpy(feature.offsets[:-1].copy())) for feature in batch
    ]
