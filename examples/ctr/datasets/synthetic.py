"""Data like Criteo's from a known logistic model, so that the best possible AUC is known too.

Samples have 13 integers and 26 categories whose values follow Zipf's law. Block i of a part (training or held
out) is a pure function of (seed, part, i), so that nothing is stored and blocks can be made in any order.

    logit = bias + sum over integers of a_j log(1 + x_j)
                 + sum over categories of w_f[value]
                 + sum over some pairs of categories of u_f[value] u_g[value']
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ctr.batches import WHOLE, Batch, Schema, Share, rebatch

_INTEGERS = 13
_CATEGORIES = 26
_BLOCK = 4096
_TRAINING, _HELD_OUT = 0, 1
# Vocabulary sizes, from a few values to more than a short run meets, as in Criteo's data.
_SIZES = np.geomspace(4, 300_000, _CATEGORIES).astype(np.int64)
_ZIPF_EXPONENT = 1.2
_PAIRS = ((0, 1), (2, 5), (4, 7), (3, 9))


class Synthetic:
    """Samples of the known model, made on demand."""

    name = "synthetic"
    schema = Schema(
        dense=tuple(f"I{column}" for column in range(1, _INTEGERS + 1)),
        one_hot=tuple(f"C{column}" for column in range(1, _CATEGORIES + 1)),
        crosses=tuple((f"C{left + 1}", f"C{right + 1}") for left, right in _PAIRS),
    )

    def __init__(self, seed: int, training_samples: int, held_out_samples: int, share: Share = WHOLE) -> None:
        """An epoch has `training_samples` over all ranks; this rank makes the blocks of its `share`."""
        self._seed = seed
        self._share = share
        self._samples = {_TRAINING: training_samples, _HELD_OUT: held_out_samples}
        generator = np.random.default_rng([seed, 2])
        self._integer_weights = generator.normal(0, 0.15, _INTEGERS)
        self._weights = [generator.normal(0, 0.25, size) for size in _SIZES]
        self._factors = {
            field: generator.normal(0, 0.6, _SIZES[field])
            for field in sorted({f for pair in _PAIRS for f in pair})
        }

    def training(self, batch_size: int, shuffle_seed: tf.Tensor) -> tf.data.Dataset:
        """One epoch, with its blocks in the order that the seed determines."""
        blocks = self._blocks(_TRAINING).shuffle(1024, seed=shuffle_seed)
        return self._read(blocks, _TRAINING, batch_size)

    def held_out(self, batch_size: int) -> tf.data.Dataset:
        """The held-out samples, the same in each pass."""
        return self._read(self._blocks(_HELD_OUT), _HELD_OUT, batch_size)

    def training_size(self) -> int:
        """Samples per epoch over all ranks; exact."""
        return self._samples[_TRAINING]

    def best_logits(self) -> tuple[np.ndarray, np.ndarray]:
        """(labels, true logits) of the held-out samples. No model can rank better than the true logits."""
        blocks = [self._make_block(_HELD_OUT, index) for index in range(self._num_blocks(_HELD_OUT))]
        return tuple(np.concatenate([block[key] for block in blocks]) for key in ("label", "logit"))

    def _num_blocks(self, part: int) -> int:
        return -(-self._samples[part] // _BLOCK)

    def _blocks(self, part: int) -> tf.data.Dataset:
        return tf.data.Dataset.range(self._num_blocks(part))

    def _read(self, blocks: tf.data.Dataset, part: int, batch_size: int) -> tf.data.Dataset:
        def make(index: np.ndarray) -> list[np.ndarray]:
            block = self._make_block(part, int(index))
            return [block[key] for key in ("label", "dense", "one_hot")]

        # It does not branch on a tensor, and AutoGraph would take longer than a block to convert it.
        @tf.autograph.experimental.do_not_convert
        def make_tensors(index: tf.Tensor) -> Batch:
            label, dense, one_hot = tf.numpy_function(make, [index], [tf.float32, tf.float32, tf.int64])
            return {
                "label": tf.ensure_shape(label, [None]),
                "dense": tf.ensure_shape(dense, [None, _INTEGERS]),
                "one_hot": tf.ensure_shape(one_hot, [None, _CATEGORIES]),
            }

        mine = blocks.shard(self._share.ranks, self._share.rank)
        return rebatch(mine.map(make_tensors, num_parallel_calls=2), batch_size).prefetch(2)

    def _make_block(self, part: int, index: int) -> dict[str, np.ndarray]:
        generator = np.random.default_rng([self._seed, part, index])
        size = min(_BLOCK, self._samples[part] - index * _BLOCK)
        integers = np.floor(np.exp(generator.normal(1, 1.2, (size, _INTEGERS))))
        integers[generator.random((size, _INTEGERS)) < 0.2] = 0
        logs = np.log1p(integers)
        values = _zipf(generator.random((size, _CATEGORIES)))
        logit = -2 + (logs - 1.2) @ self._integer_weights
        for field in range(_CATEGORIES):
            logit += self._weights[field][values[:, field]]
        for left, right in _PAIRS:
            logit += self._factors[left][values[:, left]] * self._factors[right][values[:, right]]
        clicked = generator.random(size) < 1 / (1 + np.exp(-logit))
        return {
            "label": clicked.astype(np.float32),
            "logit": logit,
            "dense": (logs / 3).astype(np.float32),
            "one_hot": _hash(values),
        }


def _zipf(uniform: np.ndarray) -> np.ndarray:
    """int64 in [0, _SIZES), by column: from density x^-s on [1, size + 1), by inversion, rounded down."""
    power = 1 - _ZIPF_EXPONENT
    ranks = (1 + uniform * ((_SIZES + 1.0) ** power - 1)) ** (1 / power)
    return np.minimum(ranks.astype(np.int64) - 1, _SIZES - 1)


def _hash(values: np.ndarray) -> np.ndarray:
    """int64 ids of (column, value), by SplitMix64's finalizer: a bijection, so that ids do not collide."""
    bits = (np.arange(_CATEGORIES, dtype=np.uint64) << np.uint64(40)) + values.astype(np.uint64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (bits ^ (bits >> np.uint64(31))).view(np.int64)
