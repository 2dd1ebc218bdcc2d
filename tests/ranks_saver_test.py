"""Raw files of tables that are sharded over ranks: one pair of files, restored on any number of ranks."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator

DIM = 3
KEYS = np.unique(np.concatenate([harness.HOSTILE_KEYS, np.arange(5000, dtype=np.int64) * 7 - 9000]))


def _rank() -> int:
    import horovod.tensorflow as hvd

    hvd.init()
    return hvd.rank()


def _trained(session: tf.compat.v1.Session) -> tuple[sok.EmbeddingVariable, tf.Tensor]:
    """A table with the rows of KEYS after a step, and a lookup of them all."""
    variable = sok.EmbeddingVariable("scope/table", DIM)
    rows = group.lookup_group([group.DenseLookup(variable, tf.constant(KEYS))])[0]
    # Every rank looks up all keys and contributes a part of their gradients.
    loss = tf.reduce_sum(tf.square(rows)) / communicator().size
    step = tf.compat.v1.train.AdagradOptimizer(0.5).minimize(loss)
    harness.initialize(session)
    session.run(step)
    return variable, rows


def _dump(folder: str) -> np.ndarray:
    """Returns the rows of KEYS."""
    _rank()
    with harness.graph_and_session() as session:
        variable, rows = _trained(session)
        assert session.run(sok.Saver().dump_to_file(variable, folder)) == b"OK"
        return session.run(rows)


def _errors(folder: str) -> dict[str, str]:
    """The error messages, by case."""
    rank = _rank()
    saver = sok.Saver()
    with harness.graph_and_session() as session:
        variable, rows = _trained(session)
        other_folder = os.path.join(folder, f"of_rank_{rank}")
        tries = {
            "missing": saver.restore_from_file(variable, os.path.join(folder, "nothing")),
            "not_shared": saver.dump_to_file(variable, other_folder),
            "rank_1_has_none": saver.restore_from_file(variable, folder if rank != 1 else other_folder),
        }
        before = session.run(rows)
        messages = {}
        for name, target in tries.items():
            try:
                session.run(target)
                messages[name] = "no error"
            except tf.errors.OpError as error:
                messages[name] = f"{type(error).__name__}: {error.message}"
        np.testing.assert_array_equal(session.run(rows), before)
    return messages


@pytest.fixture(scope="module")
def dumped(tmp_path_factory) -> tuple[pathlib.Path, np.ndarray]:
    """A folder with the files of two ranks, and the rows of KEYS."""
    folder = tmp_path_factory.mktemp("of_two_ranks")
    by_rank = ranks.run(_dump, str(folder), ranks=2)
    for rows in by_rank:
        np.testing.assert_array_equal(rows, by_rank[0])
    return folder, by_rank[0]


def test_ranks_write_one_pair_of_files(dumped):
    folder, rows = dumped
    assert sorted(path.name for path in (folder / "scope").iterdir()) == [
        "table_keys.file",
        "table_values.file",
    ]
    keys = np.fromfile(folder / "scope/table_keys.file", "<i8")
    values = np.fromfile(folder / "scope/table_values.file", "<f4").reshape(-1, DIM)
    order = np.argsort(keys)
    np.testing.assert_array_equal(keys[order], KEYS)
    np.testing.assert_array_equal(values[order], rows)


def test_errors_of_one_rank_are_raised_on_all(dumped):
    for rank, messages in enumerate(ranks.run(_errors, str(dumped[0]), ranks=2)):
        assert messages["missing"].startswith("NotFoundError"), messages["missing"]
        assert "nothing/scope/table_keys.file" in messages["missing"]
        if rank == 1:
            assert "all ranks must see the directory" in messages["not_shared"]
            assert "NotFoundError" in messages["rank_1_has_none"]
        else:
            assert "rank 1 failed" in messages["not_shared"], messages["not_shared"]
            assert "rank 1 failed" in messages["rank_1_has_none"]
