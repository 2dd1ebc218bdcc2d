# Not on GPUs: tables on CPUs only
"""SOK_MAP_TABLES: tables whose weights are the pages of the checkpoint, which processes share."""

import json
import os
import textwrap

import numpy as np
import pytest
import tensorflow as tf

import forked
import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.lookup.group import reading_only
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder

v1 = tf.compat.v1
ROWS, DIM = 20_000, 16
KEYS = np.concatenate([harness.HOSTILE_KEYS, np.arange(3, ROWS)]).astype(np.int64)
IN_SESSIONS_ONLY = pytest.mark.skipif(
    tf.__version__.startswith("1."), reason="TensorFlow 1.15 loads SavedModels in sessions only"
)


@pytest.fixture(autouse=True)
def map_tables(monkeypatch):
    monkeypatch.setenv("SOK_MAP_TABLES", "1")


def kib_of(path):
    """The kB of a file that this process has mapped, "Rss" and others; empty if it has not."""
    found, counts = {}, None
    with open("/proc/self/smaps", encoding="utf-8") as lines:
        for line in lines:
            name, *values = line.split()
            if not name.endswith(":"):
                counts = found if values[-1:] == [os.path.realpath(path)] else None
            elif counts is not None and values[-1] == "kB":
                counts[name[:-1]] = counts.get(name[:-1], 0) + int(values[0])
    return found


def make_model(optimizer=None):
    """A table, its ids, its rows, and what an optimizer does with them."""
    ids = v1.placeholder(tf.int64, [None], "ids")
    table = sok.EmbeddingVariable("items", DIM)
    with reading_only():
        rows = tf.identity(tf.nn.embedding_lookup(table, ids), "rows")
    trained = tf.nn.embedding_lookup(table, ids)
    step = optimizer.minimize(tf.reduce_sum(tf.sin(trained))) if optimizer else None
    return table, ids, rows, step


@pytest.fixture
def model(tmp_path):
    """A SavedModel with this library's ops, and the rows of KEYS."""
    with harness.graph_and_session() as session:
        table, ids, rows, _ = make_model()
        values = np.random.default_rng(1).standard_normal([len(KEYS), DIM], np.float32)
        assign = table.assign_rows(KEYS, values)
        harness.initialize(session)
        session.run(assign)
        v1.saved_model.simple_save(session, str(tmp_path / "model"), {"ids": ids}, {"rows": rows})
        return tmp_path / "model", session.run(rows, {ids: KEYS})


def data_file(folder):
    (path,) = saved_files.data_files(folder / "variables" / "variables")
    return path


def test_each_loader_gives_the_rows(model):
    folder, rows = model
    found = saved_files.serve_model(folder, {"ids": KEYS[::20].tolist()})
    np.testing.assert_array_equal(found["serving_default"]["rows"], rows[::20])


OPEN = textwrap.dedent("""
    import json, sys
    import numpy as np
    import tensorflow as tf
    import sparse_operation_kit
    from mapped_tables_test import KEYS, kib_of
    folder, path, loader = sys.argv[1:]
    v1 = tf.compat.v1
    session = v1.Session(graph=tf.Graph())
    if loader == "2":
        model = tf.saved_model.load(folder)
        rows = model.signatures["serving_default"](ids=tf.constant(KEYS))["rows"].numpy()
    else:
        with session.graph.as_default():
            v1.saved_model.load(session, ["serve"], folder)
        rows = session.run("rows:0", {"ids:0": KEYS})
    print(json.dumps([rows.astype(np.float64).sum(), kib_of(path)]))
""")


def open_model(folder, path, loader, tmp_path):
    program = tmp_path / "open.py"
    program.write_text(OPEN)
    done = forked.run(program, str(folder), str(path), loader)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("loader", ["1", pytest.param("2", marks=IN_SESSIONS_ONLY)])
def test_processes_share_the_memory(model, loader, tmp_path, monkeypatch):
    folder, rows = model
    path = data_file(folder)
    with v1.Session(graph=tf.Graph()) as session:
        with session.graph.as_default():
            v1.saved_model.load(session, ["serve"], str(folder))
        np.testing.assert_array_equal(session.run("rows:0", {"ids:0": KEYS}), rows)
        total, kib = open_model(folder, path, loader, tmp_path)
        assert total == pytest.approx(rows.astype(np.float64).sum())
        assert kib["Shared_Clean"] == kib["Rss"] > 0.9 * rows.nbytes / 1024, kib
        assert kib["Private_Dirty"] == kib["Anonymous"] == 0, kib
        monkeypatch.setenv("SOK_MAP_TABLES", "0")
        assert open_model(folder, path, loader, tmp_path) == [total, {}]


def test_a_session_that_trains_reads_and_one_that_evaluates_maps(tmp_path):
    prefix = str(tmp_path / "model.ckpt")
    with harness.graph_and_session() as session:
        _, ids, rows, step = make_model(v1.train.AdamOptimizer())
        harness.initialize(session)
        saver = v1.train.Saver()
        session.run(step, {ids: KEYS})
        saver.save(session, prefix)
        session.run(step, {ids: KEYS[:9]})
        trained = session.run(rows, {ids: KEYS})
        saver.restore(session, prefix)
        assert not kib_of(*saved_files.data_files(prefix))
        session.run(step, {ids: KEYS[:9]})
        np.testing.assert_array_equal(session.run(rows, {ids: KEYS}), trained)
        saver.restore(session, prefix)
        saved = session.run(rows, {ids: KEYS})
    with harness.graph_and_session() as session:
        _, ids, rows, _ = make_model()
        harness.initialize(session)
        v1.train.Saver().restore(session, prefix)
        assert kib_of(*saved_files.data_files(prefix))
        np.testing.assert_array_equal(session.run(rows, {ids: KEYS}), saved)


def test_a_follower_changes_mapped_rows(tmp_path):
    server = v1.Session(graph=tf.Graph(), config=harness.session_config())
    with server, harness.graph_and_session() as session:
        with server.graph.as_default():
            sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
            _, served_ids, served, _ = make_model()
        follower = sok.serving.Follower(server, str(tmp_path))
        table, ids, rows, step = make_model(v1.train.AdagradOptimizer(0.5))
        erase = table.evict(KEYS[:900:9])
        harness.initialize(session)
        saver = v1.train.Saver(builder=IncrementalBuilder())
        session.run(step, {ids: KEYS})
        for number in range(3):
            prefix = saver.save(session, str(tmp_path / "model.ckpt"), number)
            assert follower.update() == prefix
            if number == 0:
                (path,) = saved_files.data_files(prefix)
                content = path.read_bytes()
            new = np.concatenate([KEYS, np.arange(ROWS, ROWS + 5000)])
            np.testing.assert_array_equal(
                server.run(served, {served_ids: new}), session.run(rows, {ids: new})
            )
            session.run(erase)
            session.run(step, {ids: new[9000::2]})
        assert saved_files.entry(prefix, "items")["kind"] == "delta"
        kib = kib_of(path)
        assert 0 < kib["Anonymous"] < kib["Size"], "changed pages, and others"
        assert path.read_bytes() == content


def test_another_value_is_an_error(model, monkeypatch):
    monkeypatch.setenv("SOK_MAP_TABLES", "yes")
    with v1.Session(graph=tf.Graph()) as session, session.graph.as_default():
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="SOK_MAP_TABLES is 'yes'; it must be 0 or 1"
        ):
            v1.saved_model.load(session, ["serve"], str(model[0]))
