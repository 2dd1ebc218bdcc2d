"""LayerCall: the tables, variables and ids of one lookup of a `DistributedEmbedding`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.inputs import FlatIds
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy
from sparse_operation_kit.tables.table_device import may_be_on_gpu


@dataclasses.dataclass(frozen=True)
class LayerCall:
    """One call of a layer.

    Attributes:
      strategy: the tables.
      replicas: the variables of `strategy.layout.replicas`.
      variables: this rank's other variables, those of `strategy.layout.groups`.
      flat: the ids of this rank's inputs.
      name: of the layer, for messages; a name for the exchanges of this call.
    """

    strategy: DistEmbeddingStrategy
    replicas: Sequence[tf.Variable]
    variables: Sequence[tf.Variable]
    flat: Sequence[FlatIds]
    name: str

    @property
    def on_gpu(self) -> bool:
        """Whether rows may be on a GPU."""
        return any(may_be_on_gpu(variable) for variable in [*self.replicas, *self.variables])
