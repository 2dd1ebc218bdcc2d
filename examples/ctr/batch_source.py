"""Reads training or held-out batches in one graph; the feeds of a step select which."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ctr.schema import Batch
from ctr.transformations import scan


class BatchSource:
    """The batches of a data set in the current graph; each run of a session takes the next.

    The first batch is empty, then come the data set's, then empty batches without end: a rank without further
    data continues with empty batches until the other ranks are done.

    Attributes:
        batch: the current batch.
        more: scalar bool, whether the next batch will have samples.
        training: scalar bool, True in the steps that train.
    """

    def __init__(self, dataset: Any, batch_size: int) -> None:
        """`dataset` is one of `ctr.datasets`."""
        self._shuffle_seed = tf.compat.v1.placeholder(tf.int64, [])
        training = _with_empty_batches(dataset.training(batch_size, self._shuffle_seed))
        held_out = _with_empty_batches(dataset.held_out(batch_size))
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
