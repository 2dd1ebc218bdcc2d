"""Ways to find the rows of keys in TensorFlow's own ops: which one exported models should use.

A hash table of TensorFlow, binary search among sorted keys, and a window of keys in buckets by a hash. Each
gives the number of the row of each id of a batch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import flags, machine, timing
from bench.report import Result

FLAGS = {
    "keys": flags.Flag(flags.number(), "keys, random 64-bit integers", (100_000, 10_000_000)),
    **dict(batch=65_536, threads=2, rounds=10, seed=1),
}
_HASH = np.int64(-7046029254386353131)
_KEYS_OF_A_BUCKET = 4


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures all ways for one number of keys, in processor time for each id."""
    import tensorflow as tf

    v1 = tf.compat.v1
    rng = np.random.default_rng(point.seed)
    keys = np.unique(rng.integers(-(2**63), 2**63 - 1, point.keys, np.int64))
    batch = keys[rng.integers(0, len(keys), point.batch)]
    config = v1.ConfigProto(intra_op_parallelism_threads=point.threads, inter_op_parallelism_threads=1)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        ids = v1.placeholder(tf.int64, [None])
        counts: dict[str, float] = {}
        found = {name: way(tf, session, keys, ids, counts) for name, way in _WAYS.items()}
        for name, numbers in found.items():
            np.testing.assert_array_equal(session.run(numbers, {ids: batch[:1000]}) >= 0, True, err_msg=name)
        run = session.make_callable
        calls = {name: run(numbers.op, [ids]) for name, numbers in found.items()}
        contenders = {name: timing.contender(lambda call=call: call(batch)) for name, call in calls.items()}
        taken = timing.measure(contenders, point.rounds)
    for name, one in taken.items():
        counts[f"{name}: cpu ns an id"] = one.median_cpu * 1e6 / point.batch
    return [Result({"keys": len(keys), "batch": point.batch}, taken, "hash table", counts)]


def _hash_table(tf: Any, session: Any, keys: np.ndarray, ids: Any, counts: dict[str, float]) -> Any:
    values = tf.compat.v1.placeholder(tf.int64, [None])
    numbers = tf.range(tf.size(values, out_type=tf.int64))
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(values, numbers), -1)
    (fill,) = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    before, begin = machine.resident_bytes("VmRSS"), time.perf_counter()
    session.run(fill, {values: keys})
    counts["hash table: s to fill a million"] = (time.perf_counter() - begin) * 1e6 / len(keys)
    counts["hash table: bytes a key"] = (machine.resident_bytes("VmRSS") - before) / len(keys)
    return table.lookup(ids)


def _sorted(tf: Any, session: Any, keys: np.ndarray, ids: Any, counts: dict[str, float]) -> Any:
    ordered = _variable(tf, session, keys)
    place = tf.minimum(tf.searchsorted(ordered, ids, out_type=tf.int64), len(keys) - 1)
    return tf.where(tf.equal(tf.gather(ordered, place), ids), place, tf.fill(tf.shape(place), np.int64(-1)))


def _buckets(tf: Any, session: Any, keys: np.ndarray, ids: Any, counts: dict[str, float]) -> Any:
    bits = max(1, int(np.ceil(np.log2(len(keys) / _KEYS_OF_A_BUCKET))))
    of_keys = ((keys * _HASH).view(np.uint64) >> np.uint64(64 - bits)).astype(np.int64)
    sizes = np.bincount(of_keys, minlength=2**bits)
    width = int(sizes.max())
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    in_buckets = np.concatenate([keys[np.argsort(of_keys, kind="stable")], np.zeros(width, np.int64)])
    firsts, held = _variable(tf, session, first), _variable(tf, session, in_buckets)
    hashed = tf.bitcast(ids * _HASH, tf.uint64)
    bucket = tf.cast(tf.bitwise.right_shift(hashed, np.uint64(64 - bits)), tf.int64)
    window = tf.gather(firsts, bucket)[:, tf.newaxis] + tf.range(width)
    hits = tf.equal(tf.gather(held, window), ids[:, tf.newaxis])
    counts["buckets: keys of a window"] = float(width)
    return tf.reduce_max(tf.where(hits, window, tf.fill(tf.shape(window), -1)), axis=1)


_WAYS: dict[str, Callable[..., Any]] = {"hash table": _hash_table, "sorted": _sorted, "buckets": _buckets}


def _variable(tf: Any, session: Any, values: np.ndarray) -> Any:
    """Returns the value of a new variable, which is filled without a constant in the graph."""
    given = tf.compat.v1.placeholder(values.dtype, values.shape)
    variable = tf.compat.v1.Variable(given, use_resource=True)
    session.run(variable.initializer, {given: values})
    return variable.read_value()
