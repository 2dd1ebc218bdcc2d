"""Raw files of tables with keys of any dtype, and files whose name differs from the variable's."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from same_length import zip_equal

pytestmark = pytest.mark.cases_on_gpu(2)

DIM = 3
KEYS = {
    tf.int64: [0, -1, 2**31, 2**40, 2**63 - 1, -(2**63)],
    tf.int32: [0, -1, 7, 2**31 - 1, -(2**31)],
    tf.uint32: [0, 7, 2**31, 2**32 - 1],
}


def table_of(key_dtype, name="table"):
    return sok.EmbeddingVariable(name, DIM, key_dtype=key_dtype)


def rows_of(keys):
    """A row for each key that differs from its initial row."""
    return np.array([[key % 1009, key % 13, 1.5] for key in keys], np.float32)


def write_files(folder, keys, numpy_dtype, name="table"):
    np.array(keys, numpy_dtype).tofile(folder / f"{name}_keys.file")
    rows_of(keys).tofile(folder / f"{name}_values.file")


def restored(folder, key_dtype, **kwargs):
    """The rows of a table by key, after a restore."""
    with harness.graph_and_session() as session:
        table = table_of(key_dtype)
        restore = sok.Saver().restore_from_file(table, str(folder), **kwargs)
        exported = table.keys_and_rows()
        harness.initialize(session)
        assert session.run(restore) == b"OK"
        keys, rows = session.run(exported)
        return dict(zip_equal(keys.tolist(), rows.tolist()))


def expected(keys):
    return dict(zip_equal(keys, rows_of(keys).tolist()))


@pytest.mark.parametrize("key_dtype", KEYS)
def test_keys_are_written_in_the_width_of_their_dtype(tmp_path, key_dtype):
    with harness.graph_and_session() as session:
        table = table_of(key_dtype)
        lookup = tf.nn.embedding_lookup(table, tf.constant(KEYS[key_dtype], key_dtype))
        dump = sok.Saver().dump_to_file(table, str(tmp_path))
        harness.initialize(session)
        rows = session.run(lookup)
        session.run(dump)
    keys = np.fromfile(tmp_path / "table_keys.file", key_dtype.as_numpy_dtype)
    assert keys.tolist() == KEYS[key_dtype]
    np.testing.assert_array_equal(np.fromfile(tmp_path / "table_values.file", "<f4").reshape(-1, DIM), rows)


@pytest.mark.parametrize("key_dtype", KEYS)
def test_files_of_the_original_are_read(tmp_path, key_dtype):
    keys = KEYS[key_dtype]
    write_files(tmp_path, keys, key_dtype.as_numpy_dtype)
    assert restored(tmp_path, key_dtype) == expected(keys)


@pytest.mark.parametrize("key_dtype", KEYS)
def test_files_without_rows(tmp_path, key_dtype):
    write_files(tmp_path, [], np.int64)
    (tmp_path / "table_values.file").write_bytes(b"")
    assert restored(tmp_path, key_dtype) == {}


def test_missing_files_say_which_and_how_others_are_found(tmp_path):
    write_files(tmp_path, [1, 2], np.int64, "EmbeddingVariable_1")
    with pytest.raises(tf.errors.NotFoundError) as error:
        restored(tmp_path, tf.int64)
    for named in (f"{tmp_path}/table_keys.file", f"{tmp_path}/table_values.file", "name='EmbeddingVariable'"):
        assert named in error.value.message
    assert restored(tmp_path, tf.int64, name="EmbeddingVariable_1") == expected([1, 2])
    with pytest.raises(tf.errors.NotFoundError, match="EmbeddingVariable_values.file"):
        restored(tmp_path, tf.int64, name="EmbeddingVariable")


def _on_a_rank(folder):
    """Restores the original's files, checks the rows, and dumps them.

    Returns by key dtype this rank's number of rows.
    """
    counts = {}
    for key_dtype, keys in KEYS.items():
        of_dtype = f"{folder}/{key_dtype.name}"
        with harness.graph_and_session() as session:
            table = table_of(key_dtype)
            lookup = tf.nn.embedding_lookup(table, tf.constant(keys, key_dtype))
            saver = sok.Saver()
            restore = saver.restore_from_file(table, of_dtype, name="EmbeddingVariable")
            dump = saver.dump_to_file(table, of_dtype)
            harness.initialize(session)
            session.run(restore)
            np.testing.assert_array_equal(session.run(lookup), rows_of(keys))
            counts[key_dtype.name] = int(session.run(table.size()))
            session.run(dump)
    return counts


@pytest.mark.parametrize("size", [1, 2, 3])
def test_on_ranks(tmp_path, size):
    for key_dtype, keys in KEYS.items():
        (tmp_path / key_dtype.name).mkdir()
        write_files(tmp_path / key_dtype.name, keys, key_dtype.as_numpy_dtype, "EmbeddingVariable")
    for rank, counts in enumerate(ranks.run(_on_a_rank, str(tmp_path), ranks=size)):
        for key_dtype, keys in KEYS.items():
            assert counts[key_dtype.name] == sum(key % 2**64 % size == rank for key in keys)
    for key_dtype, keys in KEYS.items():
        written = np.fromfile(tmp_path / key_dtype.name / "table_keys.file", key_dtype.as_numpy_dtype)
        assert sorted(written.tolist()) == sorted(keys)
        rows = np.fromfile(tmp_path / key_dtype.name / "table_values.file", "<f4").reshape(-1, DIM)
        np.testing.assert_array_equal(rows, rows_of(written.tolist()))
