"""PyTorch, and fbgemm_gpu on the CPU."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np
import torch

from bench import jobs
from bench.sides import LEARNING_RATE, EagerSide

_INITIAL_ACCUMULATOR = 0.1  # as in the other libraries
# For each feature, ids and the offsets of bags.
_TorchBatch = List[Tuple[torch.Tensor, torch.Tensor]]
# Ids of all features, and the offsets of all bags.
_FbgemmBatch = Tuple[torch.Tensor, torch.Tensor]


class TorchSide(EagerSide):
    """An nn.EmbeddingBag with sparse gradients for each feature."""

    def __init__(self, job: jobs.Job) -> None:
        super().__init__(job)
        torch.set_num_threads(job.threads)
        features = range(job.features)
        self._bags = [
            torch.nn.EmbeddingBag.from_pretrained(
                torch.from_numpy(job.row_values(feature)), freeze=False, mode="mean", sparse=True
            )
            for feature in features
        ]
        weights, optimizers = [bag.weight for bag in self._bags], torch.optim
        self._optimizer = {
            "lazy_adam": lambda: optimizers.SparseAdam(weights, LEARNING_RATE),
            "adagrad": lambda: optimizers.Adagrad(
                weights, LEARNING_RATE, initial_accumulator_value=_INITIAL_ACCUMULATOR
            ),
            "sgd": lambda: optimizers.SGD(weights, LEARNING_RATE),
        }[job.optimizer]()
        self._gradients = [torch.from_numpy(job.gradients(feature)) for feature in features]
        self.batches = [
            [(torch.from_numpy(bags.ids), torch.from_numpy(bags.offsets[:-1].copy())) for bags in batch]
            for batch in job.read_ids()
        ]

    def outputs(self) -> list[np.ndarray]:
        """See Side."""
        return [output.numpy() for output in self._forward(self.batches[0])]

    def _forward(self, batch: _TorchBatch) -> list[torch.Tensor]:
        with torch.no_grad():
            return self._look_up(batch)

    def _step(self, batch: _TorchBatch) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(self._look_up(batch), self._gradients)
        self._optimizer.step()

    def _look_up(self, batch: _TorchBatch) -> list[torch.Tensor]:
        return [bag(*feature) for bag, feature in zip(self._bags, batch)]


class FbgemmSide(EagerSide):
    """fbgemm's table-batched embeddings: one op for all features, which trains in its backward."""

    def __init__(self, job: jobs.Job) -> None:
        super().__init__(job)
        import fbgemm_gpu  # noqa: F401  # registers the ops
        from fbgemm_gpu import split_embedding_configs as configs
        from fbgemm_gpu import split_table_batched_embeddings_ops_common as common
        from fbgemm_gpu import split_table_batched_embeddings_ops_training as training

        torch.set_num_threads(job.threads)
        table = (job.rows, job.dim, common.EmbeddingLocation.HOST, training.ComputeDevice.CPU)
        self._tables = training.SplitTableBatchedEmbeddingBagsCodegen(
            [table] * job.features,
            optimizer=getattr(configs.EmbOptimType, f"EXACT_{job.optimizer.upper()}"),
            learning_rate=LEARNING_RATE,
            eps=1e-7 if job.optimizer == "rowwise_adagrad" else 0.0,
            pooling_mode=common.PoolingMode.MEAN,
            weights_precision=configs.SparseType.from_dtype(getattr(torch, job.row_dtype)),
            output_dtype=configs.SparseType.FP32,
        )
        for feature, weights in enumerate(self._tables.split_embedding_weights()):
            weights.copy_(torch.from_numpy(job.row_values(feature)))
        if job.optimizer != "sgd":
            for (accumulator,) in self._tables.split_optimizer_states():
                accumulator.fill_(_INITIAL_ACCUMULATOR)
        gradients = [job.gradients(feature) for feature in range(job.features)]
        self._gradient = torch.from_numpy(np.concatenate(gradients, axis=1))
        self.batches = [self._as_tensors(batch) for batch in job.read_ids()]

    def outputs(self) -> list[np.ndarray]:
        """See Side."""
        return np.split(self._forward(self.batches[0]).numpy(), self.job.features, axis=1)

    def _forward(self, batch: _FbgemmBatch) -> torch.Tensor:
        with torch.no_grad():
            return self._tables(*batch)

    def _step(self, batch: _FbgemmBatch) -> None:
        self._tables(*batch).backward(self._gradient)

    @staticmethod
    def _as_tensors(batch: jobs.Batch) -> _FbgemmBatch:
        begins = np.cumsum([0, *(bags.ids.size for bags in batch)])
        offsets = [bags.offsets[:-1] + begin for bags, begin in zip(batch, begins)]
        ids = np.concatenate([bags.ids for bags in batch])
        return torch.from_numpy(ids), torch.from_numpy(np.concatenate([*offsets, begins[-1:]]))
