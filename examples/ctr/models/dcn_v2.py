"""DCN-v2 (Wang et al., 2020, arXiv:2008.13535).

Cross layers x0 * (W x + b) + x, each of which raises the degree of the interactions by one, beside a deep
network.
"""

from __future__ import annotations

import tensorflow as tf

from ctr.models.layers import dense, logit, mlp
from ctr.models.model import Inputs, ModelSettings


def dcn_v2(inputs: Inputs, settings: ModelSettings) -> tf.Tensor:
    """float32 [batch] logits."""
    flat = tf.reshape(inputs.embed("embedding", settings.dim), [-1, inputs.schema.num_slots * settings.dim])
    first = tf.concat([flat, inputs.batch["dense"]], axis=1)
    crossed = first
    for position in range(settings.cross_layers):
        crossed = first * dense(crossed, first.shape[1], f"cross_{position}") + crossed
    deep = mlp(first, settings.hidden, settings.dropout, inputs.training, "deep")
    return logit(tf.concat([crossed, deep], axis=1), "logit")
