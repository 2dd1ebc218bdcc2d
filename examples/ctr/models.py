"""The click-through models, by their names on the command line, and what they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from ctr.batches import Batch, Schema
from ctr.parsing import combined_ids
from ctr.tables import Tables, next_seed


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


def dense(
    inputs: tf.Tensor, units: int, name: str, activation: Callable[[tf.Tensor], tf.Tensor] | None = None
) -> tf.Tensor:
    """float32 [batch, units]: activation(inputs W + b), with Glorot's initial weights."""
    with tf.compat.v1.variable_scope(name):
        weights = tf.compat.v1.get_variable(
            "weights",
            [inputs.shape[1], units],
            initializer=tf.compat.v1.glorot_uniform_initializer(seed=next_seed()),
            use_resource=True,
        )
        bias = tf.compat.v1.get_variable(
            "bias", [units], initializer=tf.compat.v1.zeros_initializer(), use_resource=True
        )
    outputs = tf.matmul(inputs, weights) + bias
    return outputs if activation is None else activation(outputs)


def mlp(
    inputs: tf.Tensor, hidden: Sequence[int], dropout: float, training: tf.Tensor, name: str
) -> tf.Tensor:
    """Layers of ReLU units, each followed by dropout at rate `dropout` while training."""
    # The rate is a tensor, so that one graph serves training and evaluation without a branch.
    rate = dropout * tf.cast(training, tf.float32)
    outputs = inputs
    for position, units in enumerate(hidden):
        outputs = dense(outputs, units, f"{name}_{position}", tf.nn.relu)
        if dropout > 0:
            outputs = tf.nn.dropout(outputs, rate=rate, seed=next_seed())
    return outputs


def logit(inputs: tf.Tensor, name: str) -> tf.Tensor:
    """float32 [batch]: one linear unit."""
    return tf.squeeze(dense(inputs, 1, name), axis=1)


def wide_and_deep(inputs: Inputs, settings: ModelSettings) -> tf.Tensor:
    """Wide and deep (Cheng et al., 2016, arXiv:1606.07792): float32 [batch] logits.

    A linear model on the features and some of their combinations, and a network on their embeddings, trained
    together.
    """
    # The weights of the wide part are embeddings of one float.
    wide = tf.reduce_sum(inputs.embed("wide", 1), axis=[1, 2]) + logit(inputs.batch["dense"], "wide")
    if inputs.schema.crosses:
        wide += tf.reduce_sum(inputs.embed_crosses("wide", 1), axis=[1, 2])
    embeddings = inputs.embed("deep", settings.dim)
    flat = tf.reshape(embeddings, [-1, inputs.schema.num_slots * settings.dim])
    deep = mlp(
        tf.concat([flat, inputs.batch["dense"]], axis=1),
        settings.hidden,
        settings.dropout,
        inputs.training,
        "deep",
    )
    return wide + logit(deep, "deep_logit")


def dlrm(inputs: Inputs, settings: ModelSettings) -> tf.Tensor:
    """DLRM (Naumov et al., 2019, arXiv:1906.00091): float32 [batch] logits.

    A network turns the numbers into one more vector; the dot products of all pairs of vectors are the top
    network's input.
    """
    bottom = mlp(inputs.batch["dense"], settings.hidden[-1:], 0.0, inputs.training, "bottom")
    bottom = dense(bottom, settings.dim, "bottom_out", tf.nn.relu)
    vectors = tf.concat([bottom[:, tf.newaxis, :], inputs.embed("embedding", settings.dim)], axis=1)
    top = tf.concat([bottom, pair_products(vectors)], axis=1)
    return logit(mlp(top, settings.hidden, settings.dropout, inputs.training, "top"), "top_logit")


def pair_products(vectors: tf.Tensor) -> tf.Tensor:
    """float32 [batch, n (n - 1) / 2]: the dot product of each pair of the n vectors of [batch, n, dim]."""
    count = int(vectors.shape[1])
    products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    below_diagonal = [row * count + column for row in range(count) for column in range(row)]
    return tf.gather(products, below_diagonal, axis=1)


def dcn_v2(inputs: Inputs, settings: ModelSettings) -> tf.Tensor:
    """DCN-v2 (Wang et al., 2020, arXiv:2008.13535): float32 [batch] logits.

    Cross layers x0 * (W x + b) + x, each of which raises the degree of the interactions by one, beside a deep
    network.
    """
    flat = tf.reshape(inputs.embed("embedding", settings.dim), [-1, inputs.schema.num_slots * settings.dim])
    first = tf.concat([flat, inputs.batch["dense"]], axis=1)
    crossed = first
    for position in range(settings.cross_layers):
        crossed = first * dense(crossed, first.shape[1], f"cross_{position}") + crossed
    deep = mlp(first, settings.hidden, settings.dropout, inputs.training, "deep")
    return logit(tf.concat([crossed, deep], axis=1), "logit")


MODELS = {"wide_and_deep": wide_and_deep, "dlrm": dlrm, "dcn_v2": dcn_v2}
