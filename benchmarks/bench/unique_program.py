"""Measures `tf.unique` on demand: `python -m bench.unique_program IDS_FILE BATCHES THREADS`.

Prints "ready". Then it answers a line "<ids> <what> <calls>" with the mean wall time and processor time of a
call, in milliseconds. <what> is "unique", or "identity" for an op that does nothing, to measure the cost of
calling an op.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bench.timing import CallContender


def main(arguments: Sequence[str]) -> None:
    """Answers lines until the input ends."""
    path, batches, threads = arguments
    tf.compat.v1.enable_eager_execution()  # TensorFlow 1.15 would make ops of a graph
    tf.config.threading.set_intra_op_parallelism_threads(int(threads))
    tf.config.threading.set_inter_op_parallelism_threads(int(threads))
    rotation = itertools.cycle([tf.constant(ids) for ids in _read(pathlib.Path(path), int(batches))])
    calls = {
        "unique": lambda: tf.raw_ops.Unique(x=next(rotation), out_idx=tf.int32),
        "identity": lambda: tf.raw_ops.Identity(input=next(rotation)),
    }
    print("ready", flush=True)
    for line in sys.stdin:
        _, what, count = line.split()
        sample = CallContender(what, calls[what]).sample(int(count))
        print(sample.wall, sample.cpu, flush=True)


def _read(path: pathlib.Path, batches: int) -> list[np.ndarray]:
    """Reads the ids of each batch from a file of `ids.write_batches` with one feature and one id per bag."""
    words = np.fromfile(path, np.int64).reshape(batches, -1)
    count = (words.shape[1] - 1) // 2  # a batch has count + 1 offsets, then count ids
    return [batch[count + 1 :].copy() for batch in words]


if __name__ == "__main__":
    main(sys.argv[1:])
