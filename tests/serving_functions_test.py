# Tags: versions, old_version
# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Exports of lookups in functions and loops, of layers with dense tables, and of vocabularies."""

import contextlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.ops import control_flow_util

import harness
import saved_files
import sparse_operation_kit as sok
import sparse_operation_kit.dist_model_parallel as dmp
from sparse_operation_kit import compat
from sparse_operation_kit.lookup.group import reading_only

v1 = tf.compat.v1
KEYS = np.concatenate([harness.HOSTILE_KEYS, np.arange(2, 20)])
CASES = [[3, -1, 99, 3], [2**63 - 1], [], [7, 8, 9]]


def control_flow(with_functions):
    """Makes tf.cond and tf.while_loop functions or not."""
    return mock.patch.object(control_flow_util, "ENABLE_CONTROL_FLOW_V2", with_functions)


def make_outputs(tables, ids, kernel):
    """Lookups in conditionals, loops and functions, by name."""
    constant, given = tables

    def bags_of(keys):
        size = tf.size(keys, out_type=tf.int64)
        bags = tf.RaggedTensor.from_row_splits(keys, tf.stack([0, size // 2, size])).to_sparse()
        return sok.group_embedding_lookup_sparse([given, constant], [bags] * 2, ["mean", "sum"])

    def in_cond(keys):
        return tf.cond(
            tf.size(keys) > 1,
            lambda: 2 * tf.nn.embedding_lookup(constant, keys + 1) @ kernel,
            lambda: tf.nn.embedding_lookup(given, keys),
        )

    def in_loop(keys):
        def body(i, total):
            return i + 1, total + tf.nn.embedding_lookup(given, keys + i) * tf.cast(i + 1, tf.float32)

        rows = tf.zeros([tf.size(keys), 3])
        return tf.while_loop(lambda i, total: i < 3, body, [tf.constant(0, tf.int64), rows])[1]

    def cond_in_loop(keys):
        def body(i, total):
            return i + 1, total + tf.cond(i % 2 > 0, lambda: in_cond(keys - i), lambda: in_loop(keys + i))

        rows = tf.zeros([tf.size(keys), 3])
        return tf.while_loop(lambda i, total: i < 3, body, [tf.constant(0, tf.int64), rows])[1]

    def while_a_row_is_positive(keys):
        """The condition looks up too, and the body adds to a list."""

        def condition(i, rows):
            is_first = tf.nn.embedding_lookup(constant, keys[:1] + i)
            return (tf.reduce_sum(is_first) > 0) & (i < 4)

        def body(i, rows):
            return i + 1, rows.write(tf.cast(i, tf.int32), tf.nn.embedding_lookup(given, [i, i + 100]))

        rows = tf.TensorArray(tf.float32, 0, dynamic_size=True, clear_after_read=False, element_shape=[2, 3])
        return tf.while_loop(condition, body, [tf.constant(0, tf.int64), rows])[1].stack()

    @tf.function
    def function(keys):
        check(keys)
        return cond_in_loop(keys), inner(keys) + kernel[:1, :1], tf.concat(bags_of(keys), 1)

    @tf.function
    def check(keys):
        v1.assert_less(tf.size(keys), 100, message="too many ids")

    @tf.function
    def inner(keys):
        return tf.nn.embedding_lookup(constant, keys)

    loop = tf.function(in_loop)

    def loop_of_function_in_loop(keys):
        rows = tf.zeros([tf.size(keys), 3])
        return tf.while_loop(
            lambda i, total: i < 3,
            lambda i, total: (i + 1, total + loop(keys + i)),
            [tf.constant(1, tf.int64), rows],
        )[1]

    def chosen(keys):
        branches = [lambda: in_cond(keys), lambda: in_loop(keys), lambda: tf.zeros([1, 3])]
        return tf.switch_case(tf.minimum(tf.size(keys), 2), branches)

    of_function = function(ids)
    return {
        "in_cond": in_cond(ids),
        "in_loop": in_loop(ids),
        "cond_in_loop": cond_in_loop(ids),
        "condition": while_a_row_is_positive(ids),
        "loop_of_function_in_loop": loop_of_function_in_loop(ids),
        "chosen": chosen(ids),
        **{f"of_function_{number}": one for number, one in enumerate(tf.nest.flatten(of_function))},
        "outside": tf.nn.embedding_lookup(given, ids),
    }


class Model:
    def __init__(self, session, with_functions, trains):
        self.session = session
        matrix = np.arange(15, dtype=np.float32).reshape(5, 3) / 7
        tables = [
            sok.EmbeddingVariable("scope/constant", 3, initializer=v1.constant_initializer(0.25)),
            sok.EmbeddingVariable("given", 3, initializer=matrix),
        ]
        self.inputs = {"ids": v1.placeholder(tf.int64, [None], "ids")}
        self.kernel = v1.get_variable("kernel", [3, 3], use_resource=True)
        with contextlib.nullcontext() if trains else reading_only(), control_flow(with_functions):
            self.outputs = make_outputs(tables, self.inputs["ids"], self.kernel)
        loss = tf.add_n([tf.reduce_sum(tf.sin(3 * tf.nn.embedding_lookup(table, KEYS))) for table in tables])
        step = v1.train.AdagradOptimizer(0.1).minimize(loss)
        harness.initialize(session)
        for _ in range(3):
            session.run(step)

    def run(self, ids):
        return self.session.run(self.outputs, {self.inputs["ids"]: ids})


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name].reshape(value.shape), value, 1e-6, 1e-6, err_msg=name)


def assert_no_op_of_library(graph_def):
    nodes = [*graph_def.node, *(node for one in graph_def.library.function for node in one.node_def)]
    assert nodes and [node.op for node in nodes if node.op.startswith("Sok")] == []


@pytest.mark.parametrize(("with_functions", "trains"), [(True, False), (False, True)])
def test_functions_and_loops(tmp_path, with_functions, trains):
    with harness.graph_and_session() as session:
        model = Model(session, with_functions, trains)
        wanted = [model.run(ids) for ids in CASES]
        with control_flow(with_functions):
            sok.serving.export(session, tmp_path / "model", model.inputs, model.outputs)
            ops = [one.op.name for one in model.outputs.values()]
            frozen = sok.serving.freeze(session, session.graph.as_graph_def(), ops)
        names = {name: one.name for name, one in model.outputs.items()}
        kernel = session.run(model.kernel)
    for ids, values in zip(CASES[:2], wanted):
        found = saved_files.serve_model(tmp_path / "model", {"ids": ids}, "sparse_operation_kit")
        assert_equal(found["serving_default"], values)
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "model" / "saved_model.pb").read_bytes())
    for graph_def in (saved.meta_graphs[0].graph_def, frozen):
        assert_no_op_of_library(graph_def)
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(frozen, name="")
        handle = session.graph.get_tensor_by_name("kernel:0")
        session.run(tf.raw_ops.AssignVariableOp(resource=handle, value=kernel))
        for ids, values in zip(CASES, wanted):
            assert_equal(session.run(names, {"ids:0": ids}), values)
        with pytest.raises(tf.errors.InvalidArgumentError, match="too many ids"):
            session.run(names["of_function_0"], {"ids:0": np.arange(100)})


def test_constant_ids_in_a_branch_that_is_no_function_are_refused(tmp_path):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("items", 2, initializer=0.5)
        ids = v1.placeholder(tf.int64, [None], "ids")
        look_up = tf.function(lambda: tf.nn.embedding_lookup(table, [3]))
        with control_flow(False), reading_only():
            rows = tf.cond(tf.size(ids) > 1, look_up, lambda: tf.zeros([1, 2]))
        harness.initialize(session)
        with pytest.raises(
            ValueError, match="looks up constant ids in a branch or a loop that is no function"
        ):
            sok.serving.export(session, tmp_path / "model", {"ids": ids}, {"rows": rows})


@pytest.mark.parametrize("with_functions", [True, False])
def test_a_branch_of_a_graph_that_trains(tmp_path, with_functions):
    if with_functions and compat.VERSION < (2, 0):
        pytest.skip("TensorFlow 1.15 refuses this gradient itself, or has none")
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("items", 2, initializer=0.5)
        ids = v1.placeholder(tf.int64, [None], "ids")
        in_function = tf.function(lambda: tf.nn.embedding_lookup(table, [3]))

        def look_up():
            return in_function() * tf.nn.embedding_lookup(table, ids[:1] + 3) + in_function()

        with control_flow(with_functions):
            rows = tf.cond(tf.size(ids) > 1, look_up, lambda: tf.zeros([1, 2]))
        step = v1.train.GradientDescentOptimizer(0.25).minimize(tf.reduce_sum(rows))
        harness.initialize(session)
        session.run(step, {ids: [0, 1]})
        wanted = session.run(rows, {ids: [0, 1]})
        assert wanted[0, 0] < 0.5
        sok.serving.export(session, tmp_path / "model", {"ids": ids}, {"rows": rows})
    for given, expected in ([0], [[0.0, 0.0]]), ([0, 1], wanted):
        np.testing.assert_allclose(harness.served(str(tmp_path / "model"), ids=given)["rows"], expected)


def test_layers_with_dense_tables(tmp_path):
    """Layers of one table and of many, whose ids are merged; keys that a vocabulary numbers."""
    tables = [(9, 3, "sum"), (7, 3, "sum"), (6, 3, "mean"), (8, 2, None), (5, 4, "mean")]
    with harness.graph_and_session() as session:
        keys = v1.placeholder(tf.int64, [None, 3], "keys")
        ids = v1.placeholder(tf.int64, [None, 3], "ids")
        sparse = v1.sparse_placeholder(tf.int64, [None, None], "sparse")
        ragged = tf.RaggedTensor.from_value_rowids(sparse.values, sparse.indices[:, 0], sparse.dense_shape[0])
        vocabulary = dmp.IntegerLookup(6, name="vocabulary")
        vocabulary_keys = vocabulary.weights[0].op.name
        empty = dmp.IntegerLookup(6, name="empty")
        numbers = vocabulary(keys, training=False)
        embeddings = [dmp.Embedding(rows, columns, combiner=combiner) for rows, columns, combiner in tables]
        layer = dmp.DistributedEmbedding(embeddings, input_table_map=[0, 1, 2, 3, 4, 0, 3])
        one_hot = dmp.ConcatOneHotEmbedding([4, 4, 4], 2)
        outputs = layer([ids, ragged, sparse, ids, ids[:, :0], ids[:, :1], ids[:, 0]])
        outputs = {f"of_layer_{number}": one for number, one in enumerate(outputs)}
        outputs["mean"] = dmp.Embedding(7, 2, combiner="mean")(numbers)
        outputs["sparse"] = dmp.Embedding(7, 2, combiner="sum")(sparse)
        outputs["one_hot"] = one_hot(ids)
        outputs["numbers"] = numbers
        outputs["empty"] = empty(keys, training=False)
        outputs["in_function"] = tf.function(lambda taken: vocabulary(taken, training=False) + 1)(keys)
        added = vocabulary(tf.constant([-1, 70, -(2**63), 5, 2**63 - 1, 70], tf.int64))
        harness.initialize(session)
        session.run(added)
        inputs = {"keys": keys, "ids": ids, "sparse": sparse}
        fed = {
            keys: [[70, -1, 6], [5, 2**63 - 1, -(2**63)], [0, 70, 71]],
            ids: [[0, 3, 2], [1, 1, 3], [2, 0, 0]],
            sparse: v1.SparseTensorValue([[0, 0], [0, 1], [2, 0]], [3, 3, 5], [3, 2]),
        }
        bad = {**fed, ids: [[0, 3, 2], [1, 9, 3], [2, 0, 0]]}
        wanted = session.run(outputs, fed)
        assert wanted["numbers"].tolist() == [[1, 0, 0], [3, 4, 2], [0, 1, 0]]
        sok.serving.export(session, tmp_path / "model", inputs, outputs)
        names = {name: one.name for name, one in outputs.items()}
        ops = [name.split(":")[0] for name in names.values()]
        frozen = v1.graph_util.convert_variables_to_constants(
            session, sok.serving.freeze(session, session.graph.as_graph_def(), ops), ops
        )
        feeds = {}
        for name, taken in inputs.items():
            parts = fed[taken]._asdict() if name == "sparse" else {"": fed[taken]}
            feeds.update({f"{name}_{part}".strip("_"): value for part, value in parts.items()})
    assert_no_op_of_library(frozen)
    assert_equal(
        saved_files.serve_model(tmp_path / "model", feeds, "sparse_operation_kit")["serving_default"], wanted
    )
    saved = dict(tf.train.list_variables(str(tmp_path / "model" / "variables" / "variables")))
    assert saved[vocabulary_keys] == [7] and not [name for name in saved if "slots" in name]
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(frozen, name="")

        def run(fetched, feed):
            given = {"keys:0": feed[keys], "ids:0": feed[ids]}
            for part, value in feed[sparse]._asdict().items():
                given[f"sparse/{part.replace('dense_', '')}:0"] = value
            return session.run(fetched, given)

        assert_equal(run(names, fed), wanted)
        # Another table of the same variable has such a row.
        with pytest.raises(tf.errors.InvalidArgumentError, match="has ids in .0, 9., but input 0 .* has 9"):
            run(names["of_layer_0"], bad)
