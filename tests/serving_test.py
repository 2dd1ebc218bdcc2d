# Tags: versions, old_version
# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Models that sok.serving exports: stock TensorFlow gives the session's numbers, without this library."""

import os
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import feature_column_support
import forked
import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import CheckpointError, cli
from sparse_operation_kit.lookup.group import reading_only

v1 = tf.compat.v1
KEYS = np.concatenate([harness.HOSTILE_KEYS, np.arange(2, 40)])
BAGS = 7


def make_tables():
    """A table of each kind whose rows without a key TensorFlow's own ops can compute."""
    constant = v1.constant_initializer(0.25)
    matrix = np.arange(15, dtype=np.float32).reshape(5, 3) / 7
    return {
        "constant": sok.EmbeddingVariable("scope/constant", 4, initializer=constant),
        "given": sok.EmbeddingVariable("given", 3, initializer=matrix),
        "drawn": sok.EmbeddingVariable(
            "drawn", 2, initializer=sok.InitializerOption(default_value_dim=4), row_arithmetic=True
        ),
        "filtered": sok.EmbeddingVariable(
            "filtered",
            2,
            initializer=sok.InitializerOption(default_value_no_permission=-1.5),
            admission=sok.CounterFilter(2),
        ),
        "narrow": sok.EmbeddingVariable("narrow", 5, key_dtype=tf.int32, initializer=constant),
    }


def make_outputs(tables, dense, sparse, weights):
    """Lookups of each kind, by name."""
    as_int32 = tf.cast(dense, tf.int32)
    weighted = tf.SparseTensor(sparse.indices, weights, sparse.dense_shape)
    ragged = tf.RaggedTensor.from_value_rowids(sparse.values, sparse.indices[:, 0], sparse.dense_shape[0])
    lists = [tables[name] for name in ("constant", "given", "filtered")]
    sums, means, roots = sok.group_embedding_lookup_sparse(lists, [sparse] * 3, ["sum", "mean", "sqrtn"])
    of_weights = sok.group_embedding_lookup_sparse(
        lists, [sparse] * 3, ["mean", "sqrtn", "sum"], sp_weights=[weighted] * 3
    )
    outputs = {
        "dense": tf.nn.embedding_lookup(tables["given"], dense),
        "narrow": tf.nn.embedding_lookup(tables["narrow"], as_int32),
        "drawn": tf.nn.embedding_lookup(tables["drawn"], dense),
        "filtered": tf.nn.embedding_lookup(tables["filtered"], dense),
        "sums": sums,
        "means": means,
        "roots": roots,
        "ragged": tf.nn.embedding_lookup_sparse(tables["constant"], ragged.to_sparse(), None, combiner="sum"),
        "safe": tf.nn.safe_embedding_lookup_sparse(tables["given"], sparse, weighted, combiner="mean"),
        "clipped": tf.nn.embedding_lookup_sparse(tables["constant"], sparse, None, "mean", max_norm=0.3),
        "ragged_group": sok.group_embedding_lookup([tables["constant"]], [dense])[0],
    }
    outputs.update({f"weighted_{number}": one for number, one in enumerate(of_weights)})
    return outputs


def make_feeds(kind, seed):
    """Ids, some of which have no row; `kind` is "random", "skewed", "hostile" or "empty"."""
    rng = np.random.default_rng(seed)
    count = 0 if kind == "empty" else 60
    pool = {"skewed": KEYS[:3], "hostile": harness.HOSTILE_KEYS}.get(kind, np.arange(80))
    rows = np.sort(rng.integers(0, BAGS - 1, count))  # The last bag is empty.
    return {
        "dense": rng.choice(pool, [count // 4, 2]),
        "sparse_indices": np.stack([rows, np.arange(count)], 1),
        "sparse_values": rng.choice(pool, count),
        "sparse_dense_shape": [BAGS, 60],
        "weights": rng.choice([-0.5, 0.0, 0.5, 1.0, 2.0], count).astype(np.float32),
    }


class Model:
    """Tables with trained rows, and outputs that read them, in a session."""

    def __init__(self, session):
        self.session = session
        self.tables = make_tables()
        self.inputs = {
            "dense": v1.placeholder(tf.int64, [None, 2], "dense"),
            "sparse": v1.sparse_placeholder(tf.int64, [None, None], "sparse"),
            "weights": v1.placeholder(tf.float32, [None], "weights"),
        }
        with reading_only():
            self.outputs = make_outputs(self.tables, *self.inputs.values())
        trained = [
            tf.nn.embedding_lookup(table, tf.cast(tf.constant(KEYS), table.key_dtype))
            for table in self.tables.values()
        ]
        loss = tf.add_n([tf.reduce_sum(tf.sin(rows * 3)) for rows in trained])
        step = v1.train.AdamOptimizer(0.05).minimize(loss)
        harness.initialize(session)
        for _ in range(3):
            session.run(step)

    def feed(self, feeds):
        taken = {self.inputs[name]: feeds[name] for name in ("dense", "weights")}
        sparse = self.inputs["sparse"]
        for part in ("indices", "values", "dense_shape"):
            taken[getattr(sparse, part)] = np.reshape(
                feeds[f"sparse_{part}"], [-1, 2] if part == "indices" else [-1]
            )
        return taken

    def run(self, feeds):
        return self.session.run(self.outputs, self.feed(feeds))


def assert_equal(found, wanted, tolerance=0.0):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(
            found[name].reshape(value.shape), value, rtol=tolerance, atol=tolerance, err_msg=name
        )


def test_an_export_gives_the_numbers_of_the_session(tmp_path):
    with harness.graph_and_session() as session:
        model = Model(session)
        cases = [make_feeds(kind, seed) for seed, kind in enumerate(("random", "skewed", "hostile", "empty"))]
        wanted = [model.run(feeds) for feeds in cases]
        folder = sok.serving.export(session, tmp_path / "model", model.inputs, model.outputs)
        assert folder == str(tmp_path / "model")
        # The last case shows that nothing in the model's own session has changed.
        assert_equal(model.run(cases[0]), wanted[0])
    for feeds, values in zip(cases, wanted):
        found = saved_files.serve_model(tmp_path / "model", feeds, "sparse_operation_kit")
        assert found.keys() == {"serving_default"}
        assert_equal(found["serving_default"], values, 1e-6)
    assert sorted(os.listdir(tmp_path)) == ["model", "model.py"]
    saved = dict(tf.train.list_variables(str(tmp_path / "model" / "variables" / "variables")))
    # Each key has a row, and what ids without one read follows. There are no slots.
    assert saved["scope/constant/stock/rows"] == [len(KEYS) + 1, 4]
    assert saved["given/stock/rows"] == [len(KEYS) + 5, 3]
    assert {name.split("/stock/")[1] for name in saved} == {"rows", "keys"}


@pytest.mark.parametrize(("row_dtype", "error"), [("float16", 1e-3), ("bfloat16", 8e-3), ("int8", 4e-3)])
def test_rows_in_fewer_bytes(tmp_path, caplog, row_dtype, error):
    with harness.graph_and_session() as session:
        model = Model(session)
        feeds = make_feeds("random", 5)
        wanted = model.run(feeds)
        with caplog.at_level("INFO", "sparse_operation_kit"):
            sok.serving.export(session, tmp_path / "m", model.inputs, model.outputs, row_dtype=row_dtype)
        rows = session.run(model.tables["given"].export()[1])
    found = saved_files.serve_model(tmp_path / "m", feeds, "sparse_operation_kit")["serving_default"]
    assert_equal({"dense": found["dense"]}, {"dense": wanted["dense"]}, error * np.abs(rows).max())
    assert not np.array_equal(found["dense"], wanted["dense"])
    assert f"given: {len(KEYS)} rows of 3 as {row_dtype}, which changes weights by" in caplog.text


def test_ids_without_a_row_read_as_the_export_says(tmp_path):
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(name, 2) for name in ("one", "two", "three")]
        ids = v1.placeholder(tf.int64, [None], "ids")
        inputs, outputs = {"ids": ids}, {one.m_var_name: tf.nn.embedding_lookup(one, ids) for one in tables}
        harness.initialize(session)
        session.run(outputs, {ids: [5]})

        def export(name, absent, **options):
            return sok.serving.export(session, tmp_path / name, inputs, outputs, absent=absent, **options)

        with tf.Graph().as_default():  # The program's default graph may be another one.
            export("zeros", "zeros")
        export("each", {"one": 2.5, "two": [3.0, 4.0], "three": "zeros"})
        with pytest.raises(CheckpointError, match="embedding variable 'three': .*absent=\"zeros\""):
            export("wrong", {"one": 0.0, "two": 0.0})
        for absent, error in [
            ("ones", "absent is 'ones', not 'zeros', a number or a row"),
            (
                {"one": 0.0, "two": 0.0, "three": 0.0, "tree": 0.0},
                "absent names 'tree', which is not exported",
            ),
            ([1.0], r"'.*': absent has the shape \[1\], but a row is \[2\]"),
        ]:
            with pytest.raises(ValueError, match=error):
                export("wrong", absent)
        with pytest.raises(
            ValueError, match="row_dtype is float64, but rows can be stored as float32, float16"
        ):
            export("wrong", "zeros", row_dtype=tf.float64)
        with pytest.raises(CheckpointError, match="exists already"):
            export("zeros", "zeros")
        rows = session.run(outputs, {ids: [5]})
    assert sorted(os.listdir(tmp_path)) == ["each", "zeros"]
    for name, absent in [("zeros", [[0, 0]] * 3), ("each", [[2.5, 2.5], [3, 4], [0, 0]])]:
        found = saved_files.serve_model(tmp_path / name, {"ids": [7, 5]}, "sparse_operation_kit")
        for table, row in zip(("one", "two", "three"), absent):
            np.testing.assert_array_equal(found["serving_default"][table], [row, rows[table][0]])


# Runs TensorFlow's command line for SavedModels, with its arguments.
_COMMAND_LINE = """
import sys
sys.modules["sparse_operation_kit"] = None
from tensorflow.python.tools import saved_model_cli
sys.exit(saved_model_cli.main())
"""


def test_tensorflows_command_line_and_older_versions_take_the_model(tmp_path):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("items", 2, initializer=0.5)
        ids = v1.placeholder(tf.int64, [None], "ids")
        partitioner = v1.fixed_size_partitioner(1)
        ones = v1.ones_initializer()
        kernel = v1.get_variable(
            "kernel", [2, 1], initializer=ones, partitioner=partitioner, use_resource=True
        )
        logits = tf.nn.embedding_lookup(table, ids) @ tf.convert_to_tensor(kernel)
        harness.initialize(session)
        sok.serving.export(session, tmp_path / "model", {"ids": ids}, {"logits": logits})
    chosen = ["--dir", str(tmp_path / "model"), "--tag_set", "serve", "--signature_def", "serving_default"]
    result = forked.run_code(_COMMAND_LINE, "run", *chosen, "--input_exprs", "ids=[7, 8]", timeout=120)
    assert re.search(r"\[\[1\.\]\s*\[1\.\]\]", result.stdout), result.stdout + result.stderr
    # 1.15 loads what 2.15 exports: see docs/serving.md. It does not know this attribute and this op.
    model = saved_model_pb2.SavedModel.FromString((tmp_path / "model" / "saved_model.pb").read_bytes())
    nodes = model.meta_graphs[0].graph_def.node
    assert nodes and not [node.name for node in nodes if "debug_name" in node.attr]
    removed = "DisableCopyOnRead"
    assert not [
        node.name for node in nodes if node.op == removed or any(removed in one for one in node.input)
    ]


def test_what_has_no_counterpart_is_refused(tmp_path):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("items", 2, initializer=0.5)
        ids = v1.placeholder(tf.int64, [None], "ids")
        rows = tf.nn.embedding_lookup(table, ids)
        data = tf.data.Dataset.from_tensors(0).map(lambda _: tf.nn.embedding_lookup(table, [3]))
        element = tf.data.experimental.get_single_element(data)
        size = tf.cast(table.size(), tf.float32) + rows
        harness.initialize(session)
        for output, error in [
            (
                element,
                "an op MapDataset.*, calls a function with the op SokGroupLookup .*outside of the function",
            ),
            (size, "depends on '.*', an op SokTableS.* of this library"),
        ]:
            with pytest.raises(ValueError, match=error):
                sok.serving.export(session, tmp_path / "model", {"ids": ids}, {"output": output})
    assert not os.listdir(tmp_path)


def named_feeds(inputs, feed):
    """A session's feed as one for `saved_files.serve_model`."""
    found = {}
    for name, tensor in inputs.items():
        if isinstance(tensor, tf.SparseTensor):
            for part in ("indices", "values", "dense_shape"):
                found[f"{name}_{part}"] = getattr(feed[tensor], part)
        else:
            found[name] = feed[tensor]
    return found


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_feature_columns(tmp_path, seed):
    """Groups, shared and weighted columns, strings, vocabularies, hashes: whatever a seed draws."""
    recipes = feature_column_support.random_recipes(seed)
    rng = np.random.default_rng(seed)
    with harness.graph_and_session() as session:
        features = feature_column_support.placeholders(recipes)
        layer = v1.feature_column.input_layer(
            features, feature_column_support.make_columns(recipes, scoped=True)
        )
        kernel = v1.get_variable("kernel", [layer.shape[1], 2], partitioner=v1.fixed_size_partitioner(2, 1))
        logits = tf.matmul(layer, tf.convert_to_tensor(kernel))
        step = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(logits - 1)))
        harness.initialize(session)
        session.run(v1.tables_initializer())
        feed = feature_column_support.feed(features, feature_column_support.batch(recipes, rng, 8))
        session.run(step, feed)
        wanted = session.run({"layer": layer, "logits": logits}, feed)
        outputs = {"layer": layer, "logits": logits}
        sok.serving.export(session, tmp_path / "model", features, outputs, absent="zeros")
    found = saved_files.serve_model(tmp_path / "model", named_feeds(features, feed), "sparse_operation_kit")
    assert_equal(found["serving_default"], wanted, 1e-5)


def test_files_of_a_model_go_with_it(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("red\ngreen\nblue\n")
    with harness.graph_and_session() as session:
        color = v1.placeholder(tf.string, [None], "color")
        table = sok.EmbeddingVariable("colors", 2, initializer=0.5)
        numbers = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                str(words),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            num_oov_buckets=2,
        ).lookup(color)
        rows = tf.nn.embedding_lookup(table, numbers)
        step = v1.train.GradientDescentOptimizer(1.0).minimize(
            tf.reduce_sum(rows * tf.range(6.0)[:, tf.newaxis])
        )
        harness.initialize(session)
        session.run(v1.tables_initializer())
        feed = {color: ["blue", "red", "green", "mauve", "teal", "blue"]}
        session.run(step, feed)
        wanted = session.run(rows, feed)
        signature = {"color": color}, {"rows": rows}
        sok.serving.export(session, tmp_path / "model", *signature)
        v1.saved_model.simple_save(session, str(tmp_path / "own"), *signature, v1.tables_initializer())
    words.unlink()
    (tmp_path / "model").rename(tmp_path / "moved")
    arguments = [str(tmp_path / "own"), "--format", "saved_model", "--to", str(tmp_path / "rewritten")]
    assert cli.main(["export", *arguments]) == 0
    for name in ("moved", "rewritten"):
        found = saved_files.serve_model(tmp_path / name, {"color": feed[color]}, "sparse_operation_kit")
        np.testing.assert_array_equal(found["serving_default"]["rows"], wanted)


def test_the_command_rewrites_a_model_with_the_librarys_ops(tmp_path, capsys):
    with harness.graph_and_session() as session:
        model = Model(session)
        feeds = make_feeds("random", 9)
        wanted = model.run(feeds)
        v1.saved_model.simple_save(session, str(tmp_path / "own"), model.inputs, model.outputs)
    extra = tmp_path / "own" / "assets.extra"
    extra.mkdir()
    (extra / "warmup").write_text("requests")

    def run(*arguments):
        status = cli.main(["export", str(tmp_path / "own"), *arguments, "--to", str(tmp_path / "stock")])
        return status, capsys.readouterr().err

    for arguments, error in [
        (["--format", "npy"], "is a SavedModel, and --format npy is for checkpoints"),
        (["--format", "saved_model", "--table", "given"], "is a SavedModel, and --table is for checkpoints"),
        (["--format", "saved_model", "--absent", "gven=0"], "absent names 'gven', which is not exported"),
        (["--format", "saved_model_sok", "--absent", "0"], "--absent works with saved_model, not with"),
    ]:
        status, printed = run(*arguments)
        assert status == 2 and error in printed
    assert run("--format", "saved_model", "--absent", "zeros") == (0, "")
    assert (tmp_path / "stock" / "assets.extra" / "warmup").read_text() == "requests"
    found = saved_files.serve_model(tmp_path / "stock", feeds, "sparse_operation_kit")["serving_default"]
    of_rows = make_feeds("skewed", 3)  # Every id has a row: `absent` says what others read.
    with_library = saved_files.serve_model(tmp_path / "own", of_rows)["serving_default"]
    assert_equal(saved_files.serve_model(tmp_path / "stock", of_rows)["serving_default"], with_library, 1e-6)
    assert not np.array_equal(found["filtered"], wanted["filtered"])


@pytest.mark.parametrize("damage", ["no file", "cut off", "other tags", "damaged rows"])
def test_models_that_cannot_be_rewritten(tmp_path, capsys, damage):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("items", 2, initializer=0.5)
        ids = v1.placeholder(tf.int64, [None], "ids")
        rows = tf.nn.embedding_lookup(table, ids)
        harness.initialize(session)
        session.run(rows, {ids: [1, 2]})
        v1.saved_model.simple_save(session, str(tmp_path / "own"), {"ids": ids}, {"rows": rows})
    file = tmp_path / "own" / "saved_model.pb"
    if damage == "no file":
        file.unlink()
        error = "there is neither a checkpoint with this prefix nor such a folder|holds no checkpoint"
    elif damage == "cut off":
        file.write_bytes(file.read_bytes()[:-7])
        error = "saved_model.pb: is damaged, or no SavedModel"
    elif damage == "other tags":
        model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
        model.meta_graphs[0].meta_info_def.tags[:] = ["train"]
        file.write_bytes(model.SerializeToString())
        error = r"has 0 graphs with the tag 'serve', not one: its tags are \[\['train'\]\]"
    else:
        path, offset, size = saved_files.place(
            tmp_path / "own" / "variables" / "variables", "items", "values"
        )
        with open(path, "r+b") as opened:
            opened.seek(offset + size - 1)
            opened.write(b"\x55")
        error = "items#0/values.*checksum"
    status = cli.main(
        ["export", str(tmp_path / "own"), "--format", "saved_model", "--to", str(tmp_path / "stock")]
    )
    assert status == 2
    assert re.search(error, capsys.readouterr().err)
    assert sorted(os.listdir(tmp_path)) == ["own"]


def test_frozen_graphs(tmp_path):
    graph_util = v1.graph_util
    with harness.graph_and_session() as session:
        model = Model(session)
        cases = [make_feeds(kind, seed) for seed, kind in enumerate(("random", "hostile", "empty"))]
        wanted = [model.run(feeds) for feeds in cases]
        kernel = v1.get_variable("kernel", [4, 1], initializer=v1.ones_initializer())
        tf.matmul(model.outputs["sums"], kernel, name="logits")
        session.run(kernel.initializer)
        logits = [session.run("logits:0", model.feed(feeds)) for feeds in cases]
        names = {name: output.name for name, output in model.outputs.items()}
        frozen = graph_util.convert_variables_to_constants(
            session,
            session.graph.as_graph_def(),
            [*{name.split(":")[0] for name in names.values()}, "logits"],
        )
    assert not [node.op for node in frozen.node if "Sok" in node.op or "Var" in node.op]
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(frozen, name="")
        for feeds, values, logit in zip(cases, wanted, logits):
            given = {
                f"{name.replace('sparse_dense_shape', 'sparse/shape').replace('sparse_', 'sparse/')}:0": value
                for name, value in feeds.items()
            }
            found = session.run(names, given)
            assert_equal(found, values, 1e-6)
            np.testing.assert_allclose(session.run("logits:0", given), logit, rtol=1e-6)


@pytest.mark.skipif(not hasattr(v1, "estimator"), reason="this TensorFlow has no Estimator")
def test_estimators_export_rows_without_slots_and_exporters_stock_models(tmp_path):
    def model_fn(features, labels, mode):
        del labels
        sok.Init(global_batch_size=4, seed=harness.SEED)
        table = sok.EmbeddingVariable("items", 2)
        rows = tf.nn.embedding_lookup(table, features["ids"])
        if mode == tf.estimator.ModeKeys.PREDICT:
            with tf.control_dependencies([rows]):
                size = tf.fill(tf.shape(features["ids"]), table.size())
            return tf.estimator.EstimatorSpec(mode, predictions={"rows": rows} if stock else {"size": size})
        loss = tf.reduce_sum(tf.square(rows - 1))
        step = v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    def input_fn():
        return tf.data.Dataset.from_tensors({"ids": [3, 5, 8, 3]}).repeat(6)

    def receiver():
        inputs = {"ids": v1.placeholder(tf.int64, [None])}
        return tf.estimator.export.ServingInputReceiver(inputs, inputs)

    stock = True
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path / "model"))
    exporters = [
        sok.serving.Exporter(
            tf.estimator.LatestExporter("latest", receiver, exports_to_keep=1), absent="zeros"
        ),
        sok.serving.Exporter(tf.estimator.FinalExporter("final", receiver), absent=2.0, row_dtype="bfloat16"),
    ]
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, max_steps=6),
        tf.estimator.EvalSpec(input_fn, steps=1, exporters=exporters),
    )
    (latest,) = (tmp_path / "model" / "export" / "latest").iterdir()
    (final,) = (tmp_path / "model" / "export" / "final").iterdir()
    trained = np.stack([one["rows"] for one in estimator.predict(input_fn)][:3])
    by_hand = sok.serving.export_saved_model(estimator, str(tmp_path / "by_hand"), receiver, absent="zeros")
    for folder, absent, tolerance in [
        (latest, 0.0, 0.0),
        (pathlib.Path(by_hand.decode()), 0.0, 0.0),
        (final, 2.0, 1e-2),
    ]:
        assert folder.name.isdigit()
        found = saved_files.serve_model(folder, {"ids": [3, 5, 8, 99]}, "sparse_operation_kit")
        rows = found["serving_default"]["rows"]
        np.testing.assert_allclose(rows[:3], trained, rtol=tolerance)
        np.testing.assert_array_equal(rows[3], [absent] * 2)
    with pytest.raises(CheckpointError, match="'items': gives ids without a row random initial rows"):
        sok.serving.export_saved_model(estimator, str(tmp_path / "none"), receiver)
    assert not list((tmp_path / "none").iterdir())
    # With this library's ops: the trained checkpoint has slots, the model none, and requests add no rows.
    stock = False
    own = pathlib.Path(estimator.export_saved_model(str(tmp_path / "own"), receiver).decode())
    assert saved_files.entry(estimator.latest_checkpoint(), "items")["optimizer"]["name"] == "adam"
    assert saved_files.entry(own / "variables" / "variables", "items")["optimizer"] is None
    found = saved_files.serve_model(own, {"ids": [3, 70, 71]})["serving_default"]
    np.testing.assert_array_equal(found["size"], [3, 3, 3])


def test_a_graph_without_an_optimizer_restores_and_saves_no_slots(tmp_path, caplog):
    def build(trains):
        table = sok.EmbeddingVariable("items", 2, initializer=0.5)
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, tf.range(5, dtype=tf.int64))))
        return table, v1.train.AdamOptimizer(0.1).minimize(loss) if trains else loss, v1.train.Saver()

    prefix = str(tmp_path / "model")
    with harness.graph_and_session() as session:
        table, step, saver = build(trains=True)
        harness.initialize(session)
        session.run(step)
        saver.save(session, prefix)
        rows = harness.table_contents(session, table)
    assert saved_files.entry(prefix)["optimizer"]["name"] == "adam"
    with harness.graph_and_session() as session:
        table, loss, saver = build(trains=False)
        saver.restore(session, prefix)
        saver.save(session, str(tmp_path / "read"))
        harness.assert_equal_arrays(harness.table_contents(session, table), rows)
        with caplog.at_level("WARNING"):
            v1.train.AdamOptimizer(0.1).minimize(loss)
        assert "'items' was restored before its optimizer was made, and so without" in caplog.text
    assert saved_files.entry(tmp_path / "read")["optimizer"] is None
    with harness.graph_and_session() as session:
        _, step, saver = build(trains=True)
        saver.restore(session, prefix)
        saver.save(session, str(tmp_path / "again"))
    assert saved_files.entry(tmp_path / "again")["optimizer"] == saved_files.entry(prefix)["optimizer"]
