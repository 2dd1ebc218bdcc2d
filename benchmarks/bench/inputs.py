"""Inputs of steps inside the graph, so that they are neither fed nor copied.

A `tf.data` pipeline of ready tensors gives each step the next batch, always in the same buffers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bench.ids import Batch, FeatureBags


@dataclasses.dataclass(frozen=True)
class FeatureTensors:
    """One feature's ids in the current step, in two layouts."""

    ids: tf.Tensor  # int64 [ids]
    sparse: tf.SparseTensor  # the same ids, one row for each bag


class RotatingBatches:
    """An endless rotation over a few batches; every session.run that uses `features` takes the next one.

    Args:
      batches: The batches.
      constants: Arrays that each step gets along with its batch, such as gradients of outputs. Unlike
        variables, they need no op to read them.
      on_gpu: Whether the constants are on the GPU, as gradients are. Batches come from the host.
    """

    def __init__(
        self, batches: list[Batch], constants: Sequence[np.ndarray] = (), on_gpu: bool = False
    ) -> None:
        arrays = [[array for bags in batch for array in _arrays(bags)] for batch in batches]
        self._feeds = {}
        datasets = [self._dataset(batch_arrays) for batch_arrays in arrays]
        rotation = functools.reduce(lambda before, after: before.concatenate(after), datasets).repeat()
        from_pipeline = bool(constants) and not on_gpu
        if from_pipeline:
            rotation = tf.data.Dataset.zip((rotation, self._dataset(constants).repeat()))
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        if hasattr(options, "autotune"):
            options.autotune.enabled = False
        else:  # TensorFlow 1.15
            options.experimental_optimization.autotune = False
        self.iterator = tf.compat.v1.data.make_initializable_iterator(rotation.with_options(options))
        self._bags = batches[0][0].offsets.size - 1
        self._longest = max(feature.longest() for batch in batches for feature in batch)
        drawn = self.iterator.get_next()
        self.tensors, drawn_constants = drawn if from_pipeline else (drawn, ())
        self.constants = list(drawn_constants) or [tf.constant(array) for array in constants]
        self.features = self.features_of(self.tensors)
        self.next_batch = tf.group(*self.tensors, *self.constants)

    def _dataset(self, arrays: Sequence[np.ndarray]) -> tf.data.Dataset:
        """A dataset of one element, the arrays, which `restart` feeds."""
        holders = [tf.compat.v1.placeholder(array.dtype, array.shape) for array in arrays]
        self._feeds.update(zip(holders, arrays))
        return tf.data.Dataset.from_tensors(tuple(holders))

    def features_of(self, tensors: Sequence[tf.Tensor]) -> list[FeatureTensors]:
        """The features of a batch from `iterator`."""
        shape = tf.constant([self._bags, self._longest], tf.int64)
        return [
            FeatureTensors(ids, tf.SparseTensor(indices, ids, shape))
            for ids, indices in zip(tensors[::2], tensors[1::2])
        ]

    def restart(self, session: tf.compat.v1.Session) -> None:
        """Restarts with the first batch. Must be called before the first use."""
        session.run(self.iterator.initializer, feed_dict=self._feeds)


def _arrays(bags: FeatureBags) -> tuple[np.ndarray, np.ndarray]:
    return bags.ids, bags.sparse_indices()
