# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Checkpoints of other systems are restored on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints as foreign
import harness
import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
DIM = 3
KEYS = np.concatenate([[2**40, 2**62], np.arange(500) * 7]).astype(np.int64)


def rows_of(keys):
    rng = np.random.default_rng(0)
    values, m, v = (rng.random([len(keys), DIM], np.float32) for _ in range(3))
    return values, m, v


def forms():
    """Tensors of each form, and its keys."""
    values, m, v = rows_of(KEYS)
    variable, slots = rows_of(KEYS)[0], {"Adam": m, "Adam_1": v}
    return {
        "deeprec": (foreign.deeprec("items", foreign.Rows(KEYS, values, slots)), KEYS),
        "deeprec_5": (foreign.deeprec("items", foreign.Rows(KEYS, values, slots), 5), KEYS),
        "tfra": (foreign.tfra("items", foreign.Rows(KEYS, values, {"Adam/m": m, "Adam/v": v}), 2), KEYS),
        "variable": (foreign.variable("items", variable, **slots), np.arange(len(KEYS))),
        "slices": (foreign.in_slices(foreign.variable("items", variable, **slots), 4), np.arange(len(KEYS))),
    }


def steps(prefix, keys, values):
    """Restores and takes two steps on one rank's part of the batch; returns the rows then."""
    rank, size = communicator().rank, communicator().size
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("items", DIM)
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
        train = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows * rows))
        session.run(v1.global_variables_initializer())
        v1.train.Saver([table]).restore(session, prefix)
        np.testing.assert_array_equal(session.run(rows, {ids: keys}), values)
        for part in range(2):
            batch = keys[part * 60 : (part + 1) * 60]
            session.run(train, {ids: batch[rank::size]})
        return session.run(rows, {ids: keys})


def worker(folder):
    found = {}
    for form, (_, keys) in forms().items():
        found[form] = steps(f"{folder}/{form}", keys, rows_of(KEYS)[0])
    # The rank of the key has the reason.
    owner = 7 % communicator().size
    told = "key 7 twice: in 'items/part_0-keys' and in 'items/part_2-keys'"
    with pytest.raises(
        tf.errors.OpError, match=told if communicator().rank == owner else f"rank {owner} failed"
    ):
        steps(f"{folder}/twice", KEYS, None)
    return found


def test_any_number_of_parts_into_any_number_of_ranks(tmp_path):
    for form, (tensors, _) in forms().items():
        foreign.save(tmp_path / form, tensors)
    tensors = foreign.deeprec("items", foreign.Rows(KEYS, rows_of(KEYS)[0]), 5)
    tensors["items/part_0-keys"][0] = 7
    foreign.save(tmp_path / "twice", tensors)
    results = [result for size in (1, 2, 3) for result in ranks.run(worker, str(tmp_path), ranks=size)]
    for result in results:
        for form, rows in result.items():
            np.testing.assert_allclose(rows, results[0][form], rtol=1e-5, err_msg=form)
