"""What ranks tell each other before rows are exchanged: who they are, and what is wrong with their inputs."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.ids import unless
from sparse_operation_kit.dist_model_parallel.inputs import FlatIds
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy


class _Finding(enum.IntEnum):
    """What is wrong with an input."""

    NOTHING = 0
    ID = 1  # the value is an id that is not in the table
    BATCH = 2  # the value is a batch that ranks do not divide


# Words of a header: the fingerprint of the sender's tables, a _Finding, an input and a value.
HEADER = 4


def header(
    strategy: DistEmbeddingStrategy,
    inputs: Sequence[int],
    flat: Sequence[FlatIds],
    batches: Sequence[tf.Tensor] = (),
) -> tf.Tensor:
    """Returns the header of this rank, int64 [HEADER].

    Args:
      strategy: the tables.
      inputs: the numbers of this rank's inputs.
      flat: their ids.
      batches: their batches, int64, if ranks have to divide them.
    """
    findings, values, bad = [], [], []
    for batch in batches:
        findings.append(_Finding.BATCH)
        values.append(batch)
        bad.append(tf.not_equal(batch % strategy.world_size, 0))
    for ids in flat:
        findings.append(_Finding.ID)
        values.append(tf.where(ids.lowest < 0, ids.lowest, ids.highest))
        bad.append((ids.lowest < 0) | (ids.highest >= ids.limit))
    if not bad:
        return tf.constant([strategy.layout.fingerprint(), _Finding.NOTHING, 0, 0], tf.int64)
    # The first that is bad, as there are no others after the last.
    first = tf.argmax(tf.cast(tf.concat([tf.stack(bad), [True]], axis=0), tf.int32))
    of_inputs = [*([*inputs] * (len(bad) // len(inputs))), 0]
    return tf.stack(
        [
            tf.constant(strategy.layout.fingerprint(), tf.int64),
            tf.gather(tf.constant([*findings, _Finding.NOTHING], tf.int64), first),
            tf.gather(tf.constant(of_inputs, tf.int64), first),
            tf.gather(tf.stack([*values, tf.constant(0, tf.int64)]), first),
        ]
    )


def checked(strategy: DistEmbeddingStrategy, headers: tf.Tensor, who: str, result: tf.Tensor) -> tf.Tensor:
    """Returns `result`; running it raises InvalidArgumentError if a rank's header has a finding.

    Args:
      strategy: the tables.
      headers: int64 [ranks, HEADER], or [1, HEADER] if there is one rank only.
      who: the layer, in messages.
      result: any tensor.
    """
    is_other = tf.not_equal(headers[:, 0], strategy.layout.fingerprint())
    is_bad = is_other | tf.not_equal(headers[:, 1], _Finding.NOTHING)
    # Text is on the host only.
    with tf.device("/device:CPU:0"):
        rank = tf.argmax(tf.cast(is_bad, tf.int32))
        finding, number, value = tf.unstack(headers[rank][1:HEADER])
        on_rank = tf.strings.join([" on rank ", tf.strings.as_string(rank)])
        tables = tf.constant(
            [
                f"{strategy.describe(t)} has ids in [0, {strategy.tables[t].table.rows})"
                for t in strategy.input_table_map
            ]
        )
        of_input = tf.strings.join(["input ", tf.strings.as_string(number), on_rank])
        value = tf.strings.as_string(value)
        texts = [
            tf.strings.join(["other tables or options", on_rank, " than here"]),
            tf.strings.join([tables[number], ", but ", of_input, " has ", value]),
            tf.strings.join(
                [of_input, " has a batch of ", value, f", which {strategy.world_size} ranks do not divide"]
            ),
        ]
        text = tf.stack(texts)[tf.where(is_other[rank], tf.constant(0, tf.int64), finding)]
        return unless(tf.logical_not(tf.reduce_any(is_bad)), [f"{who}: ", text], result)
