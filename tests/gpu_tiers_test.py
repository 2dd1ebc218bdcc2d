# Tags: slow
"""Tables larger than a GPU's memory: the bits of tables without tiers, wherever rows are."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fake_gpu_device  # noqa: F401 - gives this process the device
import harness
import sparse_operation_kit as sok
import tiered_training
from sparse_operation_kit import deeprec
from sparse_operation_kit.lookup import group
from sparse_operation_kit.tables.storage_option import CacheStrategy, StorageOption, StorageType

v1 = tf.compat.v1
GPU = "/GPU:0"
DIM = tiered_training.DIM
OPTIMIZERS = tiered_training.OPTIMIZERS
BATCHES = tiered_training.batches(steps=4, end=100)


def tiers(device_bytes: int = 400, **options) -> StorageOption:
    return StorageOption(StorageType.HBM_DRAM, storage_size=[device_bytes], **options)


def over_disk(folder: pathlib.Path, **options) -> StorageOption:
    return StorageOption(StorageType.HBM_DRAM_SSDHASH, str(folder), [400, 400], **options)


@pytest.mark.parametrize(
    ("optimizer", "table", "strategy", "on_disk"),
    [
        ("sgd", "plain", CacheStrategy.LRU, False),
        ("lazy_adam", "plain", CacheStrategy.LRU, True),
        ("lazy_adam", "plain", CacheStrategy.LFU, False),
        ("lazy_adam", "16 bits", CacheStrategy.LRU, True),
        ("exact_adam", "evicting", CacheStrategy.LFU, True),
        ("sgd", "admission", CacheStrategy.LFU, True),
        ("exact_adam", "direct", CacheStrategy.LRU, True),
    ],
)
def test_tiers_change_no_bit(tmp_path, optimizer, table, strategy, on_disk):
    kind = (
        over_disk(tmp_path / "rows", cache_strategy=strategy) if on_disk else tiers(cache_strategy=strategy)
    )
    statistics = tiered_training.train(kind, optimizer, table, BATCHES, device=GPU)
    assert statistics.bytes_up == statistics.bytes_down > 0
    assert 0 < statistics.memory_rows <= 400 // 16 < statistics.rows
    assert statistics.memory_hits > 0 and statistics.memory_misses > 0
    assert (statistics.disk_bytes > 0 and statistics.disk_rows > 0) == on_disk


def test_damage_on_disk_is_an_error_and_training_goes_on_from_the_checkpoint(tmp_path):
    tiered_training.survive_damage(over_disk(tmp_path / "rows"), BATCHES, tmp_path / "model", device=GPU)


def test_each_lookup_moves_the_missing_rows_once():
    record = 3 * DIM * 4  # LazyAdam has two slots
    with harness.graph_and_session() as session:
        with tf.device(GPU):
            table = sok.EmbeddingVariable("table", DIM, memory=tiers(8 * record))
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
        step = OPTIMIZERS["lazy_adam"]().minimize(tf.reduce_sum(tf.square(rows - 1.0)))
        read = group.lookup_group([group.DenseLookup(table, ids)], training=False)
        statistics = sok.table_statistics([table])["table"]
        harness.initialize(session)
        for first in range(0, 24, 4):
            session.run(step, {ids: np.arange(first, first + 4)})
        before = session.run(statistics)
        for op in (step, read):
            # Twice the same rows, twice each: the first time they come up.
            for expected in (6, 0):
                session.run(op, {ids: [0, 1, 2, 3, 4, 5] * 2 if op is step else [6, 7, 8, 9, 10, 11] * 2})
                after = session.run(statistics)
                assert after.memory_misses - before.memory_misses == expected
                assert after.memory_hits - before.memory_hits == 6 - expected
                assert after.bytes_up - before.bytes_up == expected * record
                assert after.bytes_down - before.bytes_down == expected * record
                assert after.memory_rows == 8
                before = after


@pytest.mark.parametrize("on_disk", [False, True])
def test_checkpoints_do_not_know_of_tiers(tmp_path, on_disk):
    """A checkpoint of a table with tiers restores into one without, and back."""
    kinds = {"tiers": over_disk(tmp_path / "rows") if on_disk else tiers(), "device": "device"}
    saved = {}
    for before, after in [("tiers", "device"), ("device", "tiers")]:
        prefix = str(tmp_path / before / "model")
        for kind, restores in [(before, False), (after, True)]:
            with harness.graph_and_session() as session:
                with tf.device(GPU):
                    table = sok.EmbeddingVariable("table", DIM, memory=kinds[kind])
                ids = v1.placeholder(tf.int64, [None])
                rows = tf.nn.embedding_lookup(table, ids)
                step = OPTIMIZERS["exact_adam"]().minimize(tf.reduce_sum(tf.square(rows - 1.0)))
                statistics = sok.table_statistics([table])["table"]
                saver = v1.train.Saver()
                harness.initialize(session)
                if restores:
                    saver.restore(session, prefix)
                for batch in BATCHES[2:] if restores else BATCHES[:2]:
                    session.run(step, {ids: batch})
                moved = session.run(statistics)
                if not restores:
                    os.makedirs(os.path.dirname(prefix))
                    saver.save(session, prefix)
                saved[before, kind] = harness.table_contents(session, table)
                # Reading all rows moves none between the GPU and the host.
                assert session.run(statistics)[:-1][8:12] == moved[:-1][8:12]
    harness.assert_equal_arrays(saved["tiers", "tiers"], saved["device", "device"])
    harness.assert_equal_arrays(saved["tiers", "device"], saved["device", "tiers"])


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_table_on_a_cpu_has_no_such_tiers(tmp_path, on_disk):
    option = over_disk(tmp_path) if on_disk else tiers()
    with harness.graph_and_session() as session:
        with tf.device("/CPU:0"):
            sok.EmbeddingVariable("my_table", DIM, memory=option)
        name = option.storage_type.name
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"'my_table': {name} is for tables on a GPU"
        ):
            harness.initialize(session)


@pytest.mark.parametrize(
    ("path", "size", "message"),
    [
        ("", [0], r"HBM_DRAM needs the bytes of memory as the first number of storage_size, not \[0\]"),
        ("", [-5], r"HBM_DRAM needs the bytes of memory as the first number of storage_size, not \[-5\]"),
        ("", [], r"HBM_DRAM needs the bytes of memory as the first number of storage_size, not \[\]"),
        ("", [1, 2, 3], r"HBM_DRAM has 2 tiers, but storage_size is \[1, 2, 3\]"),
        (None, [8, 8], "HBM_DRAM_SSDHASH needs a folder as storage_path, not None"),
        ("/ssd", [8], r"needs the bytes of memory as the first two numbers of storage_size, not \[8\]"),
        ("/ssd", [8, 0], r"needs the bytes of memory as the first two numbers of storage_size, not \[8, 0\]"),
        ("/ssd", [8, 8, 8, 8], r"HBM_DRAM_SSDHASH has 3 tiers, but storage_size is \[8, 8, 8, 8\]"),
    ],
)
def test_tiers_that_are_none(path, size, message):
    kind = StorageType.HBM_DRAM if path == "" else StorageType.HBM_DRAM_SSDHASH
    with pytest.raises(ValueError, match=message):
        StorageOption(kind, path or None, size)


@pytest.mark.parametrize("on_disk", [False, True])
def test_options_of_deeprec_put_host_memory_and_a_disk_below(tmp_path, on_disk):
    kind = deeprec.StorageType.HBM_DRAM_SSDHASH if on_disk else deeprec.StorageType.HBM_DRAM
    option = deeprec.StorageOption(
        storage_type=kind,
        storage_path=str(tmp_path),
        storage_size=[4096, 1 << 30],
        cache_strategy=deeprec.CacheStrategy.LRU,
    )
    with harness.graph_and_session() as session:
        with tf.device(GPU):
            table = deeprec.get_embedding_variable(
                "table", DIM, ev_option=deeprec.EmbeddingVariableOption(storage_option=option)
            )
        names = ("tier_bytes", "tier_folder", "tier_host_bytes", "tier_by_frequency")
        attributes = [table.initializer.get_attr(name) for name in names]
        below = [str(tmp_path).encode(), 1 << 30] if on_disk else [b"", 0]
        assert attributes == [4096, *below, False]
        rows = tf.nn.embedding_lookup(table, tf.range(400, dtype=tf.int64))
        harness.initialize(session)
        first = session.run(rows)
        harness.assert_equal_arrays([session.run(rows)], [first])
