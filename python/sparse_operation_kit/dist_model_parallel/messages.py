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
    numbers = list(inputs)
    fingerprint = tf.constant(strategy.layout.fingerprint(), tf.int64)
    if not numbers:
        return tf.concat([[fingerprint], tf.zeros([HEADER - 1], tf.int64)], axis=0)
    lowest = tf.minimum(tf.stack([ids.lowest for ids in flat]), 0)
    highest = tf.stack([ids.highest for ids in flat])
    limits = tf.constant([ids.limit for ids in flat], tf.int64)
    values, bad = [tf.where(lowest < 0, lowest, highest)], [(lowest < 0) | (highest >= limits)]
    findings, of_values = [_Finding.ID] * len(numbers), numbers
    if batches:
        of_batches = tf.stack(batches)
        values.insert(0, of_batches)
        bad.insert(0, tf.not_equal(of_batches % strategy.world_size, 0))
        findings, of_values = [_Finding.BATCH] * len(numbers) + findings, numbers * 2
    # The first that is bad: nothing, if it is what follows the last.
    values, bad = [*values, tf.zeros([1], tf.int64)], [*bad, tf.ones([1], tf.bool)]
    first = tf.argmax(tf.cast(tf.concat(bad, axis=0), tf.int32))
    told = tf.constant([[*findings, _Finding.NOTHING], [*of_values, 0]], tf.int64)
    return tf.concat([[fingerprint], told[:, first], [tf.concat(values, axis=0)[first]]], axis=0)


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
