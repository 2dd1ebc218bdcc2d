"""What ranks tell each other before they exchange rows: fingerprints of tables, and errors of inputs."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.ids import unless
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy


class _Finding(enum.IntEnum):
    """An error of an input."""

    NOTHING = 0
    ID = 1  # the value is an id that is not in the table; as in MergedIds
    BATCH = 2  # the value is a batch size that is not a multiple of the number of ranks


# Words of a header: the fingerprint of the sender's tables, a _Finding, an input and a value.
HEADER = 4


def header(
    strategy: DistEmbeddingStrategy,
    inputs: Sequence[int],
    finding: tf.Tensor | None,
    batches: Sequence[tf.Tensor] = (),
) -> tf.Tensor:
    """Returns the header of this rank, int64 [HEADER].

    Args:
      strategy: the tables.
      inputs: the numbers of this rank's inputs.
      finding: what `MergedIds` found about their ids; None if there are no inputs.
      batches: their batch sizes, int64, if these must be multiples of the number of ranks.
    """
    fingerprint = tf.constant(strategy.layout.fingerprint(), tf.int64)
    if finding is None:
        return tf.concat([[fingerprint], tf.zeros([HEADER - 1], tf.int64)], axis=0)
    numbers = tf.constant(list(inputs), tf.int64)
    told = tf.stack([finding[0], tf.gather(numbers, finding[1]), finding[2]])
    if batches:
        of_batches = tf.stack(batches)
        bad = tf.not_equal(of_batches % strategy.world_size, 0)
        first = tf.argmax(tf.cast(bad, tf.int32))
        batch = tf.stack([tf.constant(_Finding.BATCH, tf.int64), numbers[first], of_batches[first]])
        told = tf.where(tf.reduce_any(bad), batch, told)
    return tf.concat([[fingerprint], told], axis=0)


def checked(strategy: DistEmbeddingStrategy, headers: tf.Tensor, who: str, result: tf.Tensor) -> tf.Tensor:
    """Returns `result`; running it raises InvalidArgumentError if a rank's header has a finding.

    In eager execution, a batch of a wrong size raises ValueError, as it does when a graph is built.

    Args:
      strategy: the tables.
      headers: int64 [ranks, HEADER], or [1, HEADER] if there is one rank only.
      who: the layer, in messages.
      result: any tensor.
    """
    is_other = tf.not_equal(headers[:, 0], strategy.layout.fingerprint())
    is_bad = is_other | tf.not_equal(headers[:, 1], _Finding.NOTHING)
    # Strings exist on the host only.
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
                [
                    of_input,
                    ": the global batch of ",
                    value,
                    f" is not divisible by {strategy.world_size} ranks",
                ]
            ),
        ]
        text = tf.stack(texts)[tf.where(is_other[rank], tf.constant(0, tf.int64), finding)]
        if tf.executing_eagerly() and finding == _Finding.BATCH and not is_other[rank]:
            raise ValueError(f"{who}: {text.numpy().decode()}")
        return unless(tf.logical_not(tf.reduce_any(is_bad)), [f"{who}: ", text], result)
