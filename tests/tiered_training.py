"""Steps of a small table whose `memory` differs between runs, for tests that compare their bits."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1
DIM = 4
IDS_OF_STEP = 40


def batches(steps: int, end: int) -> np.ndarray:
    """Ids from -20 to `end`, [steps, IDS_OF_STEP]."""
    return np.random.default_rng(0).integers(-20, end, [steps, IDS_OF_STEP])


OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "lazy_adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.1),
    "exact_adam": lambda: v1.train.AdamOptimizer(0.1),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
}
TABLES = {
    "plain": {},
    "16 bits": {"dtype": tf.bfloat16, "slot_dtype": tf.bfloat16},
    "evicting": {"capacity": 60, "on_full": "evict_lru"},
    "frequency": {"capacity": 60, "on_full": "evict_lfu"},
    "admission": {"admission": sok.CounterFilter(2)},
    "direct": {"use_hashtable": False, "capacity": 300},
}


def train(
    memory: Any, optimizer: str, table: str, steps: np.ndarray, device: str | None = None
) -> sok.TableStatistics:
    """Trains a table with this `memory`, and asserts that all is the same bits as with enough memory.

    Returns its statistics at the end.
    """
    if table == "direct":
        steps = np.abs(steps)
    found, contents, statistics = _train(memory, optimizer, steps, device, **TABLES[table])
    expected, expected_contents, expected_statistics = _train(
        "device", optimizer, steps, device, **TABLES[table]
    )
    for got, want in zip(found, expected):
        harness.assert_equal_arrays(got, want)
    harness.assert_equal_arrays(contents, expected_contents)
    # What tables have with and without tiers, and what only tiers have.
    assert statistics[:6] == expected_statistics[:6] and expected_statistics[6:13] == (0,) * 7
    return statistics


def _files_of_rows(folder: str) -> list[str]:
    """The open files of this process whose folder is `folder`, without a name."""
    opened = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [path for path in opened if os.path.exists(path) and os.readlink(path).startswith(folder)]


def survive_damage(
    memory: Any, steps: np.ndarray, checkpoint: pathlib.Path, device: str | None = None
) -> None:
    """Trains a table with a disk and damages its files: an error, and a restore makes all as it was."""
    with harness.graph_and_session() as session:
        with tf.device(device):
            table = sok.EmbeddingVariable("table", DIM, memory=memory)
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
        step = OPTIMIZERS["lazy_adam"]().minimize(tf.reduce_sum(tf.square(rows - 1.0)))
        saver = v1.train.Saver()
        harness.initialize(session)
        for batch in steps[:3]:
            session.run(step, {ids: batch})
        saver.save(session, str(checkpoint))
        contents = harness.table_contents(session, table)
        for path in _files_of_rows(memory.storage_path):
            with open(path, "r+b") as file:
                size = os.path.getsize(path)
                for offset in range(24, min(size, 20_000), 64):
                    file.seek(offset)
                    file.write(b"\xff")
        with pytest.raises(tf.errors.DataLossError) as error:
            for key in np.unique(steps[:3]):
                session.run(rows, {ids: [key]})
        message = rf"'table': row \d+ came back damaged.*'{memory.storage_path}'"
        assert re.search(message, error.value.message), error.value.message
        saver.restore(session, str(checkpoint))
        harness.assert_equal_arrays(harness.table_contents(session, table), contents)
        session.run(step, {ids: steps[3]})


def _train(memory: Any, optimizer: str, steps: np.ndarray, device: str | None, **options: Any) -> tuple:
    """(lookups of all steps, contents, statistics) of a table."""
    with harness.graph_and_session() as session:
        with tf.device(device):
            table = sok.EmbeddingVariable("table", DIM, memory=memory, **options)
        ids = v1.placeholder(tf.int64, [None])
        bags = tf.RaggedTensor.from_row_splits(ids, [0, 3, 3, 20, 40]).to_sparse()
        lookups = [group.DenseLookup(table, ids), group.SparseLookup(table, bags, "mean")]
        rows, pooled = group.lookup_group(lookups)
        step = OPTIMIZERS[optimizer]().minimize(
            tf.reduce_sum(tf.square(rows - 1.0)) + tf.reduce_sum(pooled * 2.0), var_list=[table]
        )
        read = group.lookup_group([group.DenseLookup(table, ids)], training=False)
        statistics = sok.table_statistics([table])["table"]
        harness.initialize(session)
        found = []
        for batch in steps:
            found.append(session.run([rows, pooled, step], {ids: batch})[:2])
            found.append(session.run(read, {ids: batch[::-1] + 1}))
        return found, harness.table_contents(session, table), session.run(statistics)
