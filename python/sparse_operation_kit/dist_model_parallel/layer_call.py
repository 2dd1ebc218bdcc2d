"""LayerCall: what a lookup of a `DistributedEmbedding` starts from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.inputs import FlatIds
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy


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
