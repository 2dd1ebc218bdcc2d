# Not on GPUs: tables on CPUs only
"""Tables larger than memory: the bits of tables in memory, whatever is on disk."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import threading

import numpy as np
import pytest
import tensorflow as tf

import forked
import harness
import prefetched_training
import sparse_operation_kit as sok
import tiered_training
from sparse_operation_kit import deeprec
from sparse_operation_kit.tables.storage_option import CacheStrategy, StorageOption, StorageType

v1 = tf.compat.v1
session = harness.session
DIM = tiered_training.DIM
OPTIMIZERS, TABLES = tiered_training.OPTIMIZERS, tiered_training.TABLES
BATCHES = tiered_training.batches(steps=25, end=200)


def on_disk(folder: pathlib.Path, memory_bytes: int = 400, **options) -> StorageOption:
    return StorageOption(StorageType.DRAM_SSDHASH, str(folder), [memory_bytes], **options)


@pytest.mark.parametrize("strategy", list(CacheStrategy), ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("optimizer", "table"),
    # Exact Adam refuses rows in 16 bits.
    [pair for pair in itertools.product(OPTIMIZERS, TABLES) if pair != ("exact_adam", "16 bits")],
)
def test_a_disk_changes_no_bit(tmp_path, optimizer, table, strategy):
    memory = on_disk(tmp_path / "rows", cache_strategy=strategy)
    statistics = tiered_training.train(memory, optimizer, table, BATCHES)
    assert statistics.bytes_up > 0 and statistics.bytes_down > 0 and statistics.disk_bytes > 0
    # The rows of one step fit, whatever the memory.
    assert statistics.memory_rows <= 40 < statistics.rows


@pytest.mark.parametrize("optimizer", ["lazy adam", "adam"])
def test_lookups_that_are_prepared_ahead_are_the_same(tmp_path, optimizer):
    """Their rows are asked for ahead, and move when their step needs them: so statistics are the same."""
    plain, ahead = (
        prefetched_training.train(
            way, optimizer, policies=lambda name: {"memory": on_disk(tmp_path / "rows")}
        )
        for way in (False, True)
    )
    ahead.assert_equal(plain)
    assert ahead.statistics["wide"].bytes_up > 0


def test_checkpoints_do_not_know_of_disks(tmp_path):
    """A checkpoint of a table on disk restores into memory, and back, and increments know all rows."""
    saved = {}
    for before, after in [("disk", "memory"), ("memory", "disk")]:
        kinds = {"disk": on_disk(tmp_path), "memory": "device"}
        prefix = str(tmp_path / before / "model")
        for kind, restores in [(before, False), (after, True)]:
            with harness.graph_and_session() as session:
                table = sok.EmbeddingVariable("table", DIM, memory=kinds[kind])
                ids = v1.placeholder(tf.int64, [None])
                rows = tf.nn.embedding_lookup(table, ids)
                step = OPTIMIZERS["exact_adam"]().minimize(tf.reduce_sum(tf.square(rows - 1.0)))
                saver = v1.train.Saver()
                harness.initialize(session)
                if restores:
                    saver.restore(session, prefix)
                for batch in BATCHES[10:15] if restores else BATCHES[:10]:
                    session.run(step, {ids: batch})
                if not restores:
                    os.makedirs(os.path.dirname(prefix))
                    saver.save(session, prefix)
                saved[before, kind] = harness.table_contents(session, table)
    harness.assert_equal_arrays(saved["disk", "memory"], saved["memory", "disk"])
    harness.assert_equal_arrays(saved["disk", "disk"], saved["memory", "memory"])


def test_the_file_has_no_name_and_memory_is_the_size_given(session, tmp_path):
    folder = tmp_path / "rows"
    table = sok.EmbeddingVariable("table", 64, memory=on_disk(folder, 1 << 20))
    ids = v1.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(table, ids)
    statistics = sok.table_statistics([table])["table"]
    harness.initialize(session)
    for begin in range(0, 100_000, 1000):
        session.run(rows, {ids: np.arange(begin, begin + 1000)})
    found = session.run(statistics)
    assert found.rows == 100_000
    assert found.memory_rows == (1 << 20) // 256
    assert found.disk_bytes >= (found.rows - found.memory_rows) * 256
    assert list(folder.iterdir()) == []


class _PeakOfMemory:
    """The most anonymous memory that this process had while it was entered, and before.

    The pages of files that the system has in memory are not of the process, which needs none of them.
    """

    def __init__(self) -> None:
        self.before = self.most = self._now()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _PeakOfMemory:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.002):
            self.most = max(self.most, self._now())

    def _now(self) -> int:
        status = pathlib.Path("/proc/self/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status).group(1)) * 1024


def train_and_save(folder: str, memory_bytes: int, keys: int, restores: bool) -> None:
    """Prints what the memory of the process grew by at most, the bytes on disk, and the rows."""
    with harness.graph_and_session() as session:
        memory = on_disk(pathlib.Path(folder) / "rows", memory_bytes)
        table = sok.EmbeddingVariable("table", 256, memory=memory)
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
        step = OPTIMIZERS["lazy_adam"]().minimize(tf.reduce_sum(tf.square(rows - 1.0)))
        saver = v1.train.Saver()
        statistics = sok.table_statistics([table])["table"]

        def work(count: int, restored: str, saved: str) -> None:
            if restores:
                saver.restore(session, f"{folder}/{restored}")
            for begin in range(0, count, 1024):
                session.run(step, {ids: np.arange(begin, begin + 1024)})
            saver.save(session, f"{folder}/{saved}")

        # What is made once, by whatever the table holds.
        harness.initialize(session)
        work(2048, "few", "few")
        harness.initialize(session)
        with _PeakOfMemory() as peak:
            work(keys, "all", "all")
        found = session.run(statistics)
        print("grew", peak.most - peak.before, found.disk_bytes, found.rows)


def test_memory_is_the_size_given_whatever_is_done(tmp_path):
    memory_bytes, keys = 96 << 20, 73 * 1024
    for restores in (False, True):
        arguments = f"{str(tmp_path)!r}, {memory_bytes}, {keys}, {restores}"
        code = f"import tables_on_disk_test as it; it.train_and_save({arguments})"
        result = forked.run_code(code)
        assert result.returncode == 0, result.stdout + result.stderr
        grew, disk_bytes, rows = map(int, result.stdout.split("grew")[1].split())
        assert rows == keys and disk_bytes > memory_bytes
        # Beside the size given: the row's key, its entry in the index, and where it is. And buffers, of a
        # save or of what a restore reads ahead: 4 MiB of each of four columns.
        buffers = (10 << 20) + (16 << 20) * restores
        assert grew < 1.1 * memory_bytes + 100 * rows + buffers, (restores, grew, disk_bytes, rows)


def test_damage_is_an_error_and_training_goes_on_from_the_checkpoint(tmp_path):
    tiered_training.survive_damage(on_disk(tmp_path / "rows"), BATCHES, tmp_path / "model")


def test_a_folder_that_cannot_be_is_an_error_with_the_name(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ["missing/folder", "file/rows"]:
        with harness.graph_and_session() as session:
            sok.EmbeddingVariable("items", DIM, memory=on_disk(tmp_path / folder))
            with pytest.raises(tf.errors.OpError, match=f"'items': Cannot make.*'{tmp_path}/{folder}'"):
                harness.initialize(session)


def test_options_of_deeprec_put_a_disk_below_memory(session, tmp_path):
    option = deeprec.StorageOption(
        storage_type=deeprec.StorageType.DRAM_SSDHASH,
        storage_path=str(tmp_path / "ssd"),
        storage_size=[4096],
        cache_strategy=deeprec.CacheStrategy.LRU,
    )
    table = deeprec.get_embedding_variable(
        "table", DIM, ev_option=deeprec.EmbeddingVariableOption(storage_option=option)
    )
    attributes = {name: table.initializer.get_attr(name) for name in ("tier_bytes", "tier_by_frequency")}
    assert attributes == {"tier_bytes": 4096, "tier_by_frequency": False}
    rows = tf.nn.embedding_lookup(table, tf.range(1000, dtype=tf.int64))
    harness.initialize(session)
    first = session.run(rows)
    harness.assert_equal_arrays([session.run(rows)], [first])
