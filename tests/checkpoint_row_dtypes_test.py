# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Checkpoints of tables in 16 bits: the command line, exports, raw files, and what a restore says."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf
from pyarrow import parquet

import forked
import harness
import saved_files
import sparse_operation_kit as sok
from saved_files import run_command as run
from sparse_operation_kit.checkpoint import open_checkpoint, problems

v1 = tf.compat.v1
NAMES = {"brain": tf.bfloat16, "half": tf.float16, "plain": tf.float32}
KEYS = np.unique(np.concatenate([np.arange(30, dtype=np.int64), harness.HOSTILE_KEYS]))
DIM = 6


def tables_of(dtypes=None, **options):
    """Tables of each dtype, or all of one, and a training step on all of them."""
    tables = [
        sok.EmbeddingVariable(name, DIM, dtype=dtypes or dtype, slot_dtype=tf.bfloat16, **options)
        for name, dtype in NAMES.items()
    ]
    loss = tf.add_n([tf.reduce_sum(tf.square(tf.nn.embedding_lookup(one, KEYS) - 0.3)) for one in tables])
    optimizer = sok.tf.keras.optimizers.LazyAdamOptimizer(0.05, second_moment="row")
    return tables, optimizer.minimize(loss, var_list=tables)


def save(folder, **options):
    """Trains and saves; returns the prefix, and each table's rows by key."""
    prefix = str(folder / "model.ckpt-1")
    with harness.graph_and_session() as session:
        tables, step = tables_of(**options)
        reader = harness.TableReader(*tables)
        harness.initialize(session)
        for _ in range(3):
            session.run(step)
        v1.train.Saver(tables).save(session, prefix)
        contents = reader.read(session)
    return prefix, {name: dict(zip(keys.tolist(), rows)) for name, (keys, rows) in zip(NAMES, contents)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What `save` returns. Tests leave the checkpoint as it is."""
    return save(tmp_path_factory.mktemp("saved"))


def test_inspection_verification_and_compaction(saved, tmp_path, capsys):
    prefix, _ = saved
    status, text, _ = run(capsys, "inspect", prefix)
    assert status == 0
    rows = f"{len(KEYS)} of {DIM} floats"
    for kept in (f"{rows} as bfloat16 in 1 shard", f"{rows} as float16 in 1 shard", f"{rows} in 1 shard"):
        assert kept in text
    assert text.count(f"slots       m [{DIM}] bfloat16, v [1]\n") == 3
    sizes = {entry.name: entry.open().last.bytes for entry in open_checkpoint(prefix).tables}
    assert sizes["plain"] - sizes["brain"] == len(KEYS) * DIM * 2 == sizes["plain"] - sizes["half"]
    assert not list(problems(open_checkpoint(prefix)))
    new = tmp_path / "new"
    assert run(capsys, "compact", prefix, "--to", new)[0] == 0
    harness.assert_equal_arrays(
        *(
            [array for arrays in harness.saved_tables(str(one)).values() for array in arrays.values()]
            for one in (prefix, new)
        )
    )
    assert harness.saved_tables(str(new))["half"]["values"].dtype == np.float16


@pytest.mark.parametrize("array", ["values", "slot-m"])
def test_a_changed_byte_is_found(saved, array):
    prefix, _ = saved
    path, offset, size = saved_files.place(prefix, "brain", array)
    assert size == len(KEYS) * DIM * 2
    for at in (offset, offset + size - 1):
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)
        (problem,) = problems(open_checkpoint(prefix))
        assert f"brain#0/{array}' is damaged" in problem
        content[at] ^= 1
        path.write_bytes(content)


def test_diff_tells_the_types_apart(saved, tmp_path, capsys):
    prefix, _ = saved
    other = str(tmp_path / "other" / "model.ckpt-1")
    with harness.graph_and_session() as session:
        tables, _ = tables_of(tf.float32)
        v1.train.Saver(tables).restore(session, prefix)
        v1.train.Saver(tables).save(session, other)
    status, changes, _ = run(capsys, "diff", prefix, other)
    assert status == 1
    for dtype in ("bfloat16", "float16"):
        assert f"row_dtype is float32, was {dtype}" in changes
    assert changes.count("row_dtype") == 2 and "weights" not in changes, changes


def test_exports_have_the_rows_as_float32(saved, tmp_path, capsys):
    prefix, rows = saved
    for form in ("npy", "parquet", "deeprec", "sok2", "saved_model"):
        more = ("--absent", "zeros") if form == "saved_model" else ()
        status, _, error = run(capsys, "export", prefix, "--format", form, "--to", tmp_path / form, *more)
        assert status == 0, error
    served = saved_files.serve(tmp_path / "saved_model", KEYS.tolist(), "sparse_operation_kit")
    deeprec = tf.train.load_checkpoint(str(tmp_path / "deeprec" / "model.ckpt-1"))
    for name, of_table in rows.items():
        found = dict(
            zip(
                np.load(tmp_path / "npy" / name / "keys.npy").tolist(),
                np.load(tmp_path / "npy" / name / "values.npy"),
            )
        )
        exported = parquet.read_table(tmp_path / "parquet" / f"{name}.parquet")
        of_deeprec = dict(
            zip(deeprec.get_tensor(f"{name}-keys").tolist(), deeprec.get_tensor(f"{name}-values"))
        )
        by_form = [
            found,
            dict(zip(exported["key"].to_pylist(), exported["values"].to_pylist())),
            of_deeprec,
            dict(zip(KEYS.tolist(), served[name])),
        ]
        for one in by_form:
            assert one.keys() == of_table.keys()
            for key, row in of_table.items():
                np.testing.assert_array_equal(np.asarray(one[key], np.float32), row)


@pytest.mark.parametrize("initializer", [None, 0.7])
def test_ids_without_a_row_read_as_in_the_trained_model(tmp_path, capsys, initializer):
    prefix, _ = save(tmp_path, initializer=initializer)
    absent = np.array([1000, -77], np.int64)
    with harness.graph_and_session() as session:
        tables, _ = tables_of(initializer=initializer)
        lookups = [sok.group_embedding_lookup([one], [tf.constant(absent)], training=False) for one in tables]
        v1.train.Saver(tables).restore(session, prefix)
        wanted = [rows[0] for rows in session.run(lookups)]
    forms = ["saved_model_sok"] if initializer is None else ["saved_model_sok", "saved_model"]
    for form in forms:
        assert run(capsys, "export", prefix, "--format", form, "--to", tmp_path / form)[0] == 0
        hidden = () if form == "saved_model_sok" else ("sparse_operation_kit",)
        served = saved_files.serve(tmp_path / form, absent.tolist(), *hidden)
        for name, rows in zip(NAMES, wanted):
            np.testing.assert_array_equal(served[name], rows, err_msg=f"{form} {name}")


def test_raw_files_are_float32(tmp_path):
    with harness.graph_and_session() as session:
        tables, step = tables_of()
        harness.initialize(session)
        session.run(step)
        saver = sok.Saver()
        session.run([saver.dump_to_file(one, str(tmp_path)) for one in tables])
        contents = harness.TableReader(*tables).read(session)
    for name, (keys, rows) in zip(NAMES, contents):
        values = np.fromfile(tmp_path / f"{name}_values.file", "<f4").reshape(-1, DIM)
        dumped = np.fromfile(tmp_path / f"{name}_keys.file", "<i8")
        np.testing.assert_array_equal(values[np.argsort(dumped)], rows[np.argsort(keys)])
    with harness.graph_and_session() as session:
        tables, _ = tables_of(tf.bfloat16)
        reader = harness.TableReader(*tables)
        harness.initialize(session)
        session.run([sok.Saver().restore_from_file(one, str(tmp_path)) for one in tables])
        for (keys, rows), (other_keys, others) in zip(reader.read(session), contents):
            wanted = others.astype(tf.bfloat16.as_numpy_dtype).astype(np.float32)
            np.testing.assert_array_equal(rows[np.argsort(keys)], wanted[np.argsort(other_keys)])


def restore_into_halves(prefix):
    """Restores two of the tables with rows of float16 and slots of float32."""
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(name, DIM, dtype=tf.float16) for name in ("brain", "half")]
        loss = tf.add_n([tf.reduce_sum(tf.nn.embedding_lookup(one, KEYS)) for one in tables])
        sok.tf.keras.optimizers.LazyAdamOptimizer(0.1, second_moment="row").minimize(loss)
        v1.train.Saver(tables).restore(session, prefix)


def test_a_restore_into_another_type_says_so(saved):
    prefix, _ = saved
    code = f"import checkpoint_row_dtypes_test as it; it.restore_into_halves({prefix!r})"
    done = forked.run_interpreter("-c", code, TF_CPP_MIN_LOG_LEVEL="0")
    forked.succeeded(done)
    said = re.findall("Embedding variable '(.*)' converts the (.*) of '(.*)' from (.*)", done.stderr)
    assert sorted(said) == [
        ("brain", "rows", f"{prefix}.index:brain", "bfloat16 to float16, rounded to nearest"),
        ("brain", "slot 'm'", f"{prefix}.index:brain", "bfloat16 to float32"),
        ("half", "slot 'm'", f"{prefix}.index:half", "bfloat16 to float32"),
    ]


def test_an_exported_variable_has_initial_rows_as_they_are_kept(tmp_path, capsys):
    ids = np.arange(20, dtype=np.int64)
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("items", DIM, dtype=tf.bfloat16)
        trained = tf.nn.embedding_lookup(table, tf.constant(ids[:7]))
        (rows,) = sok.group_embedding_lookup([table], [tf.constant(ids)], training=False)
        harness.initialize(session)
        session.run(trained)
        v1.train.Saver().save(session, str(tmp_path / "model"))
        wanted = session.run(rows)
    to = tmp_path / "out"
    command = ["export", tmp_path / "model", "--format", "variable", "--rows", len(ids), "--to", to]
    assert run(capsys, *command)[0] == 0
    np.testing.assert_array_equal(tf.train.load_checkpoint(str(to / "model")).get_tensor("items"), wanted)
