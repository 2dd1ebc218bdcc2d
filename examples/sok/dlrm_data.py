"""Samples for DLRM: Criteo's lines, or generated samples with the same features."""

from __future__ import annotations

import functools
import os
import sys

import numpy as np
import tensorflow as tf

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from ctr.parsing import split_columns  # noqa: E402 - needs the path

NUMBERS, CATEGORIES = 13, 26
# One in this many samples is held out.
HELD_OUT = 10


def vocabulary_sizes(largest):
    """The number of values of each category, from `largest` to 4."""
    return [int(size) for size in np.geomspace(largest, 4, CATEGORIES)]


def samples(data_dir, sizes, held_out):
    """A finite dataset of samples (inputs, label): the held-out ones, or the others."""
    if data_dir:
        return _criteo(os.path.join(data_dir, "train.txt"), sizes, held_out)
    return _generated(sizes, held_out)


def batches(data_dir, sizes, global_batch_size, rank, ranks, held_out):
    """An iterator over a rank's batches: the held-out ones once, the others without end."""
    read = samples(data_dir, sizes, held_out)
    if held_out:
        # Each rank takes its part of each batch, so that all ranks have the same number of batches.
        read = read.batch(global_batch_size).map(
            lambda *batch: tf.nest.map_structure(lambda part: part[rank::ranks], batch)
        )
    else:
        read = read.shard(ranks, rank).repeat().shuffle(10_000, seed=1)
        read = read.batch(global_batch_size // ranks, drop_remainder=True).prefetch(2)
    return tf.compat.v1.data.make_initializable_iterator(read)


def _criteo(path, sizes, held_out):
    """The lines of a file: label, 13 integers, 26 categories. Values are hashed to the category's size."""

    def is_chosen(number, _):
        return tf.equal(tf.equal(number % HELD_OUT, 0), held_out)

    def parse(_, line):
        # Empty categories at the end of a line may be omitted.
        columns = split_columns(line[tf.newaxis], "\t", 1 + NUMBERS + CATEGORIES)[0]
        numbers = tf.strings.regex_replace(columns[1 : 1 + NUMBERS], "^$", "0")
        counts = tf.math.log1p(tf.maximum(tf.strings.to_number(numbers), 0.0))
        texts = tf.unstack(columns[1 + NUMBERS :], num=CATEGORIES)
        keys = [tf.strings.to_hash_bucket_fast(text, size) for text, size in zip(texts, sizes)]
        return {"numbers": counts, "categories": tf.stack(keys)}, tf.strings.to_number(columns[0])

    return tf.data.TextLineDataset(path).enumerate().filter(is_chosen).map(parse)


def _generated(sizes, held_out):
    """Generated samples: the held-out ones, or the others."""
    arrays = _drawn(tuple(sizes))
    chosen = (np.arange(len(arrays[-1])) % HELD_OUT == 0) == held_out
    numbers, categories, clicks = (array[chosen] for array in arrays)
    return tf.data.Dataset.from_tensor_slices(({"numbers": numbers, "categories": categories}, clicks))


@functools.lru_cache(maxsize=None)
def _drawn(sizes, count=40_000):
    """Numbers, categories and clicks, which depend on the first number and on a weight for each value."""
    generator = np.random.default_rng(3)
    categories = np.stack(
        [np.minimum(generator.zipf(1.3, count) - 1, size - 1) for size in sizes], axis=1
    ).astype(np.int64)
    numbers = generator.exponential(1.0, [count, NUMBERS]).astype(np.float32)
    score = numbers[:, 0] - 1
    for column, size in enumerate(sizes):
        score = score + generator.normal(0, 0.5, size)[categories[:, column]]
    clicks = (generator.random(count) < 1 / (1 + np.exp(-score))).astype(np.float32)
    return numbers, categories, clicks
