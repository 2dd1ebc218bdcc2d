# Tags: versions
# Not on GPUs: graphs, names and libraries
"""Embedding variables come back from a MetaGraph: lookups, training, Savers and initializers go on."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import deeprec
from sparse_operation_kit.deeprec.incremental_saver import IncrementalSaver

deeprec.uninstall()  # importing it has installed its names
session = harness.session
v1 = tf.compat.v1
IDS = np.arange(-3, 12)


def build(optimizer=None, name="scope/table", **options):
    step = v1.train.get_or_create_global_step()
    kernel = v1.get_variable("kernel", [3, 1])
    table = sok.EmbeddingVariable(name, dim=3, **options)
    ids = v1.placeholder(tf.int64, [None], name="ids")
    rows = tf.identity(tf.nn.embedding_lookup(table, ids), name="rows")
    optimizer = optimizer or v1.train.AdamOptimizer(0.1)
    optimizer.minimize(tf.reduce_sum(tf.sin(rows @ kernel)), step, name="train")


class Imported:
    """What a program finds in a graph by the names that its ops were exported with."""

    def __init__(self, session, scope=None):
        self._session = session
        self._scope = f"{scope}/" if scope else ""

    def train(self, number):
        ids = np.random.default_rng(number).choice(IDS, 5)
        self._session.run(f"{self._scope}train", {f"{self._scope}ids:0": ids})

    def rows(self):
        return self._session.run(f"{self._scope}rows:0", {f"{self._scope}ids:0": IDS})

    def table(self):
        (table,) = (one for one in v1.global_variables() if isinstance(one, sok.EmbeddingVariable))
        return table


def exported(tmp_path, **options):
    """Saves a model after three steps; returns the prefix, and the rows after two more."""
    with harness.graph_and_session() as session:
        build(**options)
        harness.initialize(session)
        model = Imported(session)
        for number in range(3):
            model.train(number)
        prefix = v1.train.Saver().save(session, str(tmp_path / "model"))
        model.train(3)
        model.train(4)
        return prefix, model.rows()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": v1.train.GradientDescentOptimizer(0.1), "initializer": 0.5, "capacity": 40},
        {"admission": sok.CounterFilter(2), "eviction": sok.GlobalStepEvict(1000)},
        {"initializer": np.arange(15.0).reshape(5, 3), "key_dtype": tf.int64},
    ],
    ids=["adam", "sgd in a scope", "policies in a scope", "given rows"],
)
def test_training_goes_on(session, tmp_path, options, request):
    """By the Saver of the MetaGraph, and by a new one, which saves and restores the table too."""
    scope = "imported" if "scope" in request.node.name else None
    prefix, want = exported(tmp_path, **options)
    saver = v1.train.import_meta_graph(f"{prefix}.meta", import_scope=scope, clear_devices=True)
    model = Imported(session, scope)
    saver.restore(session, prefix)
    model.train(3)
    again = v1.train.Saver()
    path = again.save(session, str(tmp_path / "new"))
    assert model.table().op.name in dict(tf.train.list_variables(path))
    model.train(4)
    # A full save makes the steps that exact Adam has postponed, which rounds otherwise.
    np.testing.assert_allclose(model.rows(), want, rtol=1e-5, atol=1e-6)
    harness.initialize(session)
    assert session.run(model.table().size()) == 0
    again.restore(session, path)
    model.train(4)
    np.testing.assert_allclose(model.rows(), want, rtol=1e-5, atol=1e-6)


def test_savers_that_are_built_after_an_import_are_of_their_own_kind(tmp_path):
    prefix, _ = exported(tmp_path)
    with harness.graph_and_session() as session:
        saver = v1.train.import_meta_graph(f"{prefix}.meta")
        incremental = IncrementalSaver(max_to_keep=2, sharded=True)
        saver.restore(session, prefix)
        for number in range(4):
            Imported(session).train(number)
            if number < 3:
                incremental.incremental_save(session, str(tmp_path / "job"), number)
        want = Imported(session).rows()
        saver.save(session, str(tmp_path / "job"), 3)
        Imported(session).train(4)
        path = incremental.incremental_save(session, str(tmp_path / "job"), 4)
        Imported(session).train(5)
        saver.restore(session, str(tmp_path / "job-3"))
        np.testing.assert_allclose(Imported(session).rows(), want, rtol=1e-5, atol=1e-6)
        saver.restore(session, path)
    kinds = {one.stem: saved_files.counted_by(one.with_suffix("")) for one in tmp_path.glob("job-*.index")}
    assert kinds == {"job-2": "incremental", "job-3": "full", "job-4": "incremental"}


def test_the_variable_is_as_it_was(session, tmp_path):
    options = {"capacity": 40, "admission": sok.CounterFilter(2), "on_full": "evict_lfu", "initializer": 0.25}
    with tf.Graph().as_default():
        build(**options)
        kept = sok.EmbeddingVariable(
            "kept",
            dim=2,
            trainable=False,
            key_dtype=tf.uint32,
            capacity=9,
            on_full="evict_lfu",
            eviction=sok.GlobalStepEvict(3),
        )
        v1.add_to_collection(v1.GraphKeys.MODEL_VARIABLES, kept)
        v1.get_variable("last", [2])
        keys = (v1.GraphKeys.TRAINABLE_VARIABLES, v1.GraphKeys.MODEL_VARIABLES, v1.GraphKeys.GLOBAL_VARIABLES)
        before = {key: [one.name for one in v1.get_collection(key)] for key in keys}
        (table,) = (one for one in v1.trainable_variables() if one.name == "scope/table:0")
        meta = v1.train.export_meta_graph()
    v1.train.import_meta_graph(meta)
    for key in keys:
        assert [one.name for one in v1.get_collection(key)] == before[key]
    found = {one.m_var_name: one for one in v1.global_variables() if isinstance(one, sok.EmbeddingVariable)}
    got = found["scope/table"]
    for attribute in (
        "dim",
        "capacity",
        "key_dtype",
        "use_hashtable",
        "constant_initial_value",
        "trainable",
    ):
        assert getattr(got, attribute) == getattr(table, attribute), attribute
    assert got.shape.as_list() == [40, 3] and found["kept"].key_dtype == tf.uint32
    assert found["kept"].evicts_by_step and not got.evicts_by_step
    assert not found["kept"].trainable
    tables, others = sok.split_embedding_variable_from_others(v1.trainable_variables())
    assert tables == [got] and [one.name for one in others] == ["kernel:0", "last:0"]
    harness.initialize(session)
    keys = tf.constant([7, 7, 8], tf.int64)
    session.run(tf.nn.embedding_lookup(got, keys))
    np.testing.assert_array_equal(session.run(got.get_frequency(keys)), [2, 2, 1])
    frequency = found["kept"].get_frequency(tf.constant([1], tf.uint32))
    np.testing.assert_array_equal(session.run(frequency), [0])
    # A new optimizer trains it with the ordinary variables.
    loss = tf.reduce_sum(tf.nn.embedding_lookup(got, keys))
    step = v1.train.GradientDescentOptimizer(0.5).minimize(loss)
    session.run(step)
    assert session.run(got.size()) == 2


def test_variables_of_deeprec_come_back():
    """With their one part, their collection, and their arithmetic, which a new optimizer asks for."""
    with tf.Graph().as_default():
        sok.get_embedding_variable("parts", embedding_dim=2, partitioner=v1.fixed_size_partitioner(3))
        sok.EmbeddingVariable("drawn", dim=2, row_arithmetic=True)
        # Its rows of zeros are not known from those of keys that the filter holds back.
        sok.EmbeddingVariable("filtered", dim=2, initializer=0.0, admission=sok.CounterFilter(2))
        meta = v1.train.export_meta_graph()
    with tf.Graph().as_default():
        v1.train.import_meta_graph(meta)
        parts, drawn, filtered = v1.trainable_variables()
        assert [one.name for one in (parts, drawn, filtered)] == ["parts:0", "drawn:0", "filtered:0"]
        assert filtered.constant_initial_value is None
        assert list(parts) == [parts] and len(parts) == 1 and parts.capacity is None
        assert drawn.row_arithmetic and not parts.row_arithmetic
        assert v1.get_collection("embedding_variables") == [parts]


def test_an_imported_table_starts_from_a_checkpoint(tmp_path):
    """Its new initializer needs no Init of the program."""
    prefix, _ = exported(tmp_path)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.import_meta_graph(f"{prefix}.meta")
        model = Imported(session)
        v1.train.init_from_checkpoint(prefix, {"scope/table": model.table()})
        rows = tf.nn.embedding_lookup(model.table(), IDS)
        session.run(model.table().initializer)
        saved = harness.saved_tables(prefix)["scope/table"]
        found = dict(zip_equal(IDS.tolist(), session.run(rows).tolist()))
        assert {key: found[key] for key in saved["keys"].tolist()} == dict(
            zip_equal(saved["keys"].tolist(), saved["values"].tolist())
        )


def test_two_imports_under_scopes_do_not_share_rows(session, tmp_path):
    prefix, want = exported(tmp_path)
    savers = [v1.train.import_meta_graph(f"{prefix}.meta", import_scope=scope) for scope in "ab"]
    for saver in savers:
        saver.restore(session, prefix)
    first, second = (Imported(session, scope) for scope in "ab")
    before = first.rows()
    second.train(3)
    second.train(4)
    np.testing.assert_array_equal(first.rows(), before)
    np.testing.assert_array_equal(second.rows(), want)


@pytest.mark.parametrize("with_graph_def", [False, True])
@pytest.mark.parametrize("with_init", [False, True])
def test_a_scope_is_exported_alone(with_init, with_graph_def):
    """Without the Init outside it. Each import has rows of its own, in the same graph too."""
    with harness.graph_and_session() as session:
        if with_init:
            _init()
        for scope in ("one", "two"):
            with v1.variable_scope(scope):
                table = sok.EmbeddingVariable("table", dim=3, initializer=0.5)
                tf.identity(tf.nn.embedding_lookup(table, tf.constant([7], tf.int64)), name="rows")
        graph_def = session.graph.as_graph_def() if with_graph_def else None
        meta = v1.train.export_meta_graph(
            graph_def=graph_def, export_scope="two", clear_extraneous_savers=not with_graph_def
        )
        v1.train.import_meta_graph(meta, import_scope="three")
        harness.initialize(session)
        session.run(table.assign_rows([7], [[1.0, 2.0, 3.0]]))
        np.testing.assert_array_equal(session.run("two/rows:0"), [[1, 2, 3]])
        np.testing.assert_array_equal(session.run("three/rows:0"), [[0.5] * 3])
    for is_before in (True, False):
        with tf.Graph().as_default() as graph, v1.Session() as session:
            if is_before:
                _init()
            v1.train.import_meta_graph(meta, import_scope="three")
            if not is_before:
                _init()
            tables = [one for one in v1.global_variables() if isinstance(one, sok.EmbeddingVariable)]
            assert [one.name for one in tables] == ["three/table:0"]
            assert len([op for op in graph.get_operations() if op.type == "SokInitHasRun"]) == 1
            session.run(v1.global_variables_initializer())
            np.testing.assert_array_equal(session.run("three/rows:0"), [[0.5] * 3])


@pytest.mark.parametrize("scope", [None, "scope"])
def test_a_collection_list_has_tables_as_other_variables(tmp_path, scope):
    with harness.graph_and_session() as session:
        build()
        harness.initialize(session)
        saver = v1.train.Saver()
        saver.export_meta_graph(str(tmp_path / "meta"), [v1.GraphKeys.GLOBAL_VARIABLES], clear_devices=True)
        trainable = v1.train.export_meta_graph(collection_list=[v1.GraphKeys.TRAINABLE_VARIABLES, "other"])
        neither = v1.train.export_meta_graph(collection_list=("other",))
    prefix = f"{scope}/" if scope else ""
    names = [f"{prefix}{name}" for name in ("kernel:0", "scope/table:0")]
    for meta, everything, trained in (
        (str(tmp_path / "meta"), names, []),
        (trainable, [], names),
        (neither, [], []),
    ):
        with tf.Graph().as_default():
            v1.train.import_meta_graph(meta, import_scope=scope)
            assert {*names} & {one.name for one in v1.global_variables()} == {*everything}
            assert [one.name for one in v1.trainable_variables()] == trained


def _init():
    return sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)


@pytest.mark.parametrize("is_before", [True, False])
def test_the_programs_init_replaces_that_of_the_meta_graph(is_before):
    """Their seeds differ; a session has one Init."""
    with tf.Graph().as_default():
        _init()
        build()
        meta = v1.train.export_meta_graph()
    nodes = {node.name: node for node in meta.graph_def.node}
    (has_run,) = (node for node in nodes.values() if node.op == "SokInitHasRun")
    words = nodes[has_run.input[0]].attr["value"].tensor
    assert tf.make_ndarray(words).tolist() == [harness.GLOBAL_BATCH_SIZE, harness.SEED, 1]
    words.CopyFrom(tf.make_tensor_proto([harness.GLOBAL_BATCH_SIZE, harness.SEED + 1, 1], tf.int64))
    with tf.Graph().as_default(), v1.Session() as session:
        if is_before:
            _init()
        v1.train.import_meta_graph(meta)
        if not is_before:
            _init()
        other = sok.EmbeddingVariable("other", dim=2)
        harness.initialize(session)
        assert session.run(other.size()) == 0


def test_a_graph_of_another_rank_is_refused():
    with tf.Graph().as_default():
        build()
        meta = v1.train.export_meta_graph()
    (text,) = meta.collection_def["variables_of_sparse_operation_kit"].bytes_list.value
    members = meta.collection_def["variables_of_sparse_operation_kit"].bytes_list
    for old, new, error in (
        (b'"rank": [0, 1]', b'"rank": [1, 4]', "'scope/table' cannot be imported: rank 1 of 4 exported"),
        (
            b'"kind": "EmbeddingVariable"',
            b'"kind": "DynamicVariable2"',
            "'scope/table' .* is a DynamicVariable2",
        ),
    ):
        assert text.count(old) == 1
        changed = text.replace(old, new)
        members.value[0] = _proto(json.loads(changed[changed.index(b"{") :]))
        with tf.Graph().as_default(), pytest.raises(ValueError, match=error):
            v1.train.import_meta_graph(meta)


def _proto(description):
    from google.protobuf import wrappers_pb2

    return wrappers_pb2.StringValue(value=json.dumps(description)).SerializeToString()


_ELSEWHERE = """
import sys
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
if sys.argv[2] == "library":
    import sparse_operation_kit as sok
try:
    saver = v1.train.import_meta_graph(sys.argv[1] + ".meta")
except Exception as error:
    print("ERROR", error)
    sys.exit()
with v1.Session() as session:
    saver.restore(session, sys.argv[1])
    print("ROWS", session.run("rows:0", {"ids:0": [1, 2]}).sum())
    path = v1.train.Saver().save(session, sys.argv[1] + "-again")
    print("SAVED", "scope/table" in dict(tf.train.list_variables(path)))
"""


@pytest.mark.parametrize("library", ["library", "nothing"])
def test_another_process(tmp_path, library):
    prefix, _ = exported(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, prefix, library],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    if library == "nothing":
        assert "ERROR" in run.stdout and "Sok" in run.stdout
    else:
        assert "ROWS" in run.stdout and "SAVED True" in run.stdout
