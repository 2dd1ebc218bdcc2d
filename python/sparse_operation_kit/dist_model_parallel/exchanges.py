"""What ranks send each other: headers with fingerprints and errors, ids, matrices and their gradients."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.inputs import unless
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy
from sparse_operation_kit.ranks import exchange_names
from sparse_operation_kit.ranks.communicator import communicator


def exchange_ids(messages: Sequence[Sequence[tf.Tensor]], name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Sends each rank an int64 message.

    Args:
      messages: for each receiver, the parts of its message, int64 vectors.
      name: of the exchange.

    Returns:
      `(received, splits)`: int64 [w], the messages by sender, and int64 [ranks], their lengths.
    """
    lengths = [tf.add_n([tf.size(part) for part in parts]) for parts in messages]
    words = tf.concat([part for parts in messages for part in parts], axis=0)
    received, splits = communicator().exchange(words, tf.stack(lengths), name)
    return received, tf.cast(splits, tf.int64)


def swap(
    own: Sequence[tf.Tensor],
    own_counts: tf.Tensor,
    counts: Sequence[tf.Tensor],
    widths: Sequence[Sequence[int]],
    name: str,
) -> list[list[tf.Tensor]]:
    """Sends each rank its rows of this rank's matrices. Gradients are sent back in another exchange.

    Args:
      own: float32 matrices of this rank; the rows for rank 0, then those for rank 1, and so on.
      own_counts: int64 [ranks, matrices], how many rows of each matrix each rank gets.
      counts: for each sender, int64 [its matrices], how many rows of each it sends to this rank.
      widths: for each sender, the numbers of columns of its matrices.
      name: of the exchange.

    Returns:
      For each sender, the rows that it sent of each of its matrices.
    """
    ranks = communicator()
    if ranks.size == 1:
        return [list(own)]

    @tf.custom_gradient
    def forward(*own):
        rows = [tf.split(matrix, own_counts[:, i], num=ranks.size) for i, matrix in enumerate(own)]
        by_receiver = [[of_matrix[rank] for of_matrix in rows] for rank in range(ranks.size)]
        arrived = _exchange(by_receiver, counts, widths, name)

        def backward(*gradients):
            every = iter(gradients)
            by_receiver = [[next(every) for _ in of_sender] for of_sender in widths]
            here = [own_counts[rank] for rank in range(ranks.size)]
            back_name = exchange_names.unique_name(f"gradient of {name}")
            # An error on any rank ends the lookup on all ranks. Then no rank may start the next exchange.
            with tf.control_dependencies([] if tf.executing_eagerly() else here):
                back = _exchange(by_receiver, here, [widths[ranks.rank]] * ranks.size, back_name)
            return [tf.concat(of_matrix, axis=0) for of_matrix in zip(*back)]

        return [matrix for of_sender in arrived for matrix in of_sender], backward

    arrived = iter(forward(*own))
    return [[next(arrived) for _ in of_sender] for of_sender in widths]


def _exchange(
    by_receiver: Sequence[Sequence[tf.Tensor]],
    counts: Sequence[tf.Tensor],
    widths: Sequence[Sequence[int]],
    name: str,
) -> list[list[tf.Tensor]]:
    """Sends matrices; returns those that arrive, whose shapes are `counts` and `widths`."""
    parts, lengths = [], []
    for matrices in by_receiver:
        flat = [tf.reshape(matrix, [-1]) for matrix in matrices]
        floats = tf.add_n([tf.size(part, out_type=tf.int64) for part in flat])
        parts += [*flat, tf.zeros([floats % 2])]
        lengths.append((floats + 1) // 2)
    words = tf.bitcast(tf.reshape(tf.concat(parts, axis=0), [-1, 2]), tf.int64)
    received, _ = communicator().exchange(words, tf.cast(tf.stack(lengths), tf.int32), name)
    sizes = []
    for of_sender, columns in zip(counts, widths):
        floats = of_sender * tf.constant(columns, tf.int64)
        sizes.append(tf.concat([floats, [tf.reduce_sum(floats) % 2]], axis=0))
    arrived = tf.reshape(tf.bitcast(received, tf.float32), [-1])
    flat = iter(tf.split(arrived, tf.concat(sizes, axis=0), num=sum(len(of) + 1 for of in widths)))
    matrices = []
    for columns in widths:
        matrices.append([tf.reshape(next(flat), [-1, width]) for width in columns])
        next(flat)  # padding to a whole number of words
    return matrices


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
    found = tf.stack([finding[0], tf.gather(numbers, finding[1]), finding[2]])
    if batches:
        of_batches = tf.stack(batches)
        bad = tf.not_equal(of_batches % strategy.world_size, 0)
        first = tf.argmax(tf.cast(bad, tf.int32))
        batch = tf.stack([tf.constant(_Finding.BATCH, tf.int64), numbers[first], of_batches[first]])
        found = tf.where(tf.reduce_any(bad), batch, found)
    return tf.concat([[fingerprint], found], axis=0)


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
