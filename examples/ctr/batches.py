"""What a batch has, which samples a rank reads, and the stream of batches in a graph.

A batch is a dictionary of dense tensors, so that `tf.data` can split and join batches:

    label              float32 [batch]              1 for a click or similar, else 0
    dense              float32 [batch, len(dense)]  numbers, scaled to about 1
    one_hot            int64   [batch, len(one_hot)]            exactly one id per slot
    multi_hot          int64   [batch, len(multi_hot), max_nnz] ids, padded
    multi_hot_present  bool    [batch, len(multi_hot), max_nnz] which of those ids are real

The last two are absent if there are no multi-hot slots.

Ids are 64-bit hashes of "field=value" (see `ctr.parsing.field_ids`), so that all slots of a data set can
share one table and one exchange.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Dict

import tensorflow as tf

Batch = Dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Schema:
    """The features of a data set, in their order in the tensors of a batch."""

    dense: tuple[str, ...]
    one_hot: tuple[str, ...]
    multi_hot: tuple[str, ...] = ()
    max_nnz: int = 0
    # Pairs of one-hot features whose combinations have weights in the wide part of wide-and-deep.
    crosses: tuple[tuple[str, str], ...] = ()

    @property
    def num_slots(self) -> int:
        """The number of one-hot and multi-hot slots."""
        return len(self.one_hot) + len(self.multi_hot)


@dataclasses.dataclass(frozen=True)
class Share:
    """Every `ranks`-th sample, starting with number `rank`, of samples in the same order on all ranks.

    The shares are disjoint and cover all samples, without communication between ranks.
    """

    rank: int = 0
    ranks: int = 1


WHOLE = Share()


# Transformations of datasets that TensorFlow 1.15 has under other names, or not at all. Their functions must
# not branch on a tensor in Python: AutoGraph does not convert them, which would take longer than building a
# small graph.


def rebatch(dataset: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
    """Batches of `batch_size` samples from batches of any size; the last may be smaller."""
    if hasattr(dataset, "rebatch"):
        return dataset.rebatch(batch_size)
    return dataset.apply(tf.data.experimental.unbatch()).batch(batch_size)


def take_while(dataset: tf.data.Dataset, predicate: Callable[..., tf.Tensor]) -> tf.data.Dataset:
    """The elements before the first for which `predicate` is false."""
    predicate = tf.autograph.experimental.do_not_convert(predicate)
    if hasattr(dataset, "take_while"):
        return dataset.take_while(predicate)
    return dataset.apply(tf.data.experimental.take_while(predicate))


def scan(dataset: tf.data.Dataset, state: Any, function: Callable[..., tuple]) -> tf.data.Dataset:
    """The second results of `function(state, element)`, whose first is the state for the next element."""
    function = tf.autograph.experimental.do_not_convert(function)
    if hasattr(dataset, "scan"):
        return dataset.scan(state, function)
    return dataset.apply(tf.data.experimental.scan(state, function))


class BatchSource:
    """The batches of a data set in the current graph; each run of a session takes the next.

    The first batch is empty, then come the data set's, then empty batches without end: a rank without further
    data continues with empty batches until the other ranks are done.

    Attributes:
        batch: the current batch.
        more: scalar bool, whether the next batch will have samples.
        training: scalar bool, True in the steps that train.
    """

    def __init__(self, dataset: Any, held_out: Any, batch_size: int) -> None:
        """Batches to train on of `dataset`, and held-out ones of `held_out`; both are of `ctr.datasets`."""
        self._shuffle_seed = tf.compat.v1.placeholder(tf.int64, [])
        training = _with_empty_batches(dataset.training(batch_size, self._shuffle_seed))
        held_out = _with_empty_batches(held_out.held_out(batch_size))
        self._iterators = {
            True: tf.compat.v1.data.make_initializable_iterator(training),
            False: tf.compat.v1.data.make_initializable_iterator(held_out),
        }
        self._handles = {kind: iterator.string_handle() for kind, iterator in self._iterators.items()}
        self._handle = tf.compat.v1.placeholder(tf.string, [])
        self.training: tf.Tensor = tf.compat.v1.placeholder(tf.bool, [])
        self.batch: Batch
        self.more: tf.Tensor
        self.batch, self.more = tf.compat.v1.data.Iterator.from_string_handle(
            self._handle,
            tf.compat.v1.data.get_output_types(training),
            tf.compat.v1.data.get_output_shapes(training),
        ).get_next()

    def start_training(self, session: tf.compat.v1.Session, shuffle_seed: int) -> dict[tf.Tensor, Any]:
        """Begins an epoch in the order that the seed determines; returns the feeds of its steps."""
        session.run(self._iterators[True].initializer, {self._shuffle_seed: shuffle_seed})
        return self._feeds(session, training=True)

    def start_held_out(self, session: tf.compat.v1.Session) -> dict[tf.Tensor, Any]:
        """Begins a pass over the held-out samples; returns the feeds of its steps."""
        session.run(self._iterators[False].initializer)
        return self._feeds(session, training=False)

    def _feeds(self, session: tf.compat.v1.Session, training: bool) -> dict[tf.Tensor, Any]:
        return {self._handle: session.run(self._handles[training]), self.training: training}


def _with_empty_batches(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Pairs (batch, whether the next has samples): an empty batch, `batches`, then only empty batches."""
    empty = {key: tf.zeros([0, *spec.shape[1:]], spec.dtype) for key, spec in batches.element_spec.items()}
    endless = batches.concatenate(tf.data.Dataset.from_tensors(empty).repeat())
    pairs = scan(endless, empty, lambda last, batch: (batch, (last, tf.size(batch["label"]) > 0)))
    return pairs.prefetch(1)
