"""Wide and deep (Cheng et al., 2016, arXiv:1606.07792).

A linear model on the features and some of their combinations, and a network on their embeddings, trained
together.
"""

from __future__ import annotations

import tensorflow as tf

from ctr.models.layers import logit, mlp
from ctr.models.model import Inputs, ModelSettings


def wide_and_deep(inputs: Inputs, settings: ModelSettings) -> tf.Tensor:
    """float32 [batch] logits."""
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
