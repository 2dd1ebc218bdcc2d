"""The inputs and settings of models."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ctr.parsing import combined_ids
from ctr.schema import Batch, Schema
from ctr.tables import Tables


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """Sizes and regularization of all models."""

    dim: int  # floats per embedding
    hidden: tuple[int, ...]  # units of the layers of the deep part
    dropout: float  # rate in those layers
    cross_layers: int  # of DCN-v2


@dataclasses.dataclass
class Inputs:
    """One batch and the tables to look it up in."""

    batch: Batch
    schema: Schema
    tables: Tables
    training: tf.Tensor  # scalar bool
    # All embeddings that were looked up, for the L2 penalty on the rows that a batch uses.
    embeddings: list[tf.Tensor] = dataclasses.field(default_factory=list)

    def embed(self, name: str, dim: int) -> tf.Tensor:
        """float32 [batch, slots, dim]: the embeddings of all slots, one-hot first, from tables `name`."""
        parts = self.tables.embed(name, self.batch, self.schema, dim, self.training)
        self.embeddings.extend(parts)
        return tf.concat(parts, axis=1)

    def embed_crosses(self, name: str, dim: int) -> tf.Tensor:
        """float32 [batch, crosses, dim]: the embeddings of the schema's combined features."""
        pairs = [[self.schema.one_hot.index(feature) for feature in pair] for pair in self.schema.crosses]
        ids = combined_ids(tf.gather(self.batch["one_hot"], pairs, axis=1))
        self.embeddings.append(self.tables.one_hot(f"{name}_crosses", ids, dim, self.training))
        return self.embeddings[-1]
