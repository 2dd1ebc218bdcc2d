"""Malformed gradients, plans and handles give an error, and leave the table and the session alone."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import native
from sparse_operation_kit.lookup import group

DIM = 2
ROWS = 3
NAME = "sound_table"


class Trained:
    """A table with three rows, and the op that applies gradients to it, all of whose inputs are fed."""

    def __init__(self, session, optimizer="sgd", hyper=(1.0,), indices_unique=False):
        self.session = session
        self.table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        rows = tf.nn.embedding_lookup(self.table, [10, 20, 30])
        place = tf.compat.v1.placeholder
        self.inputs = {"indices": place(tf.int64), "values": place(tf.float32), "hyper": place(tf.float32)}
        self.good = {"indices": [0, 2], "values": [[1.0, 1.0], [2.0, 2.0]], "hyper": hyper}
        self.op = native.ops.sok_apply_gradients(
            handle=self.table.handle, optimizer=optimizer, indices_unique=indices_unique, **self.inputs
        )
        harness.initialize(session)
        session.run(rows)

    def run(self, **changed):
        values = {**self.good, **changed}
        self.session.run(self.op, {self.inputs[name]: value for name, value in values.items()})


@contextlib.contextmanager
def unharmed(session, table):
    """The table is afterwards as it was."""
    before = harness.table_contents(session, table)
    yield
    for was, now in zip(before, harness.table_contents(session, table), strict=True):
        np.testing.assert_array_equal(now, was)


CASES = {
    "indices of rank 0": {"indices": 0},
    "indices of rank 2": {"indices": [[0, 2]]},
    "fewer indices": {"indices": [0]},
    "more indices": {"indices": [0, 1, 2]},
    "values of rank 1": {"values": [1.0, 2.0]},
    "values of rank 3": {"values": [[[1.0, 1.0]], [[2.0, 2.0]]]},
    "values too narrow": {"values": [[1.0], [2.0]]},
    "values too wide": {"values": [[1.0] * 3, [2.0] * 3]},
    "no values": {"values": np.zeros([0, DIM])},
    "a row past the last": {"indices": [0, ROWS]},
    "a row far past the last": {"indices": [2**62, 0]},
    "a negative row": {"indices": [-1, 0]},
    "the least row": {"indices": [0, -(2**63)]},
    "hyper of rank 0": {"hyper": 1.0},
    "hyper of rank 2": {"hyper": [[1.0]]},
    "no hyper-parameters": {"hyper": np.zeros([0])},
    "too many hyper-parameters": {"hyper": [1.0, 1.0]},
    "NaN for a learning rate": {"hyper": [np.nan]},
    "an infinite learning rate": {"hyper": [np.inf]},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("indices_unique", [False, True])
def test_gradients(case, indices_unique):
    with harness.graph_and_session() as session:
        trained = Trained(session, indices_unique=indices_unique)
        with unharmed(session, trained.table), pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            trained.run(**CASES[case])
        before = harness.table_contents(session, trained.table)[1]
        trained.run()
        np.testing.assert_allclose(
            harness.table_contents(session, trained.table)[1], before - [[1, 1], [0, 0], [2, 2]], rtol=1e-6
        )


@pytest.mark.parametrize(
    ("optimizer", "good", "bad"),
    [
        ("momentum", [0.1, 0.9], [0.1]),
        ("adagrad", [0.1, 0.1, 0.0], [0.1, np.nan, 0.0]),
        ("ftrl", [0.1, -0.5, 0.1, 0.0, 0.0, 0.0, 0.0], [0.1, -0.5, 0.1]),
        ("lazy_adam", [0.1, 0.9, 0.999, 1e-8], [0.1, np.inf, 0.999, 1e-8]),
        ("adam", [0.1, 0.9, 0.999, 1e-8], [np.nan, 0.9, 0.999, 1e-8]),
    ],
)
def test_hyper_parameters_of_stateful_optimizers(optimizer, good, bad):
    """Wrong ones leave no trace: two steps around a refused one are two steps."""
    results = []
    for refused in (False, True):
        with harness.graph_and_session() as session:
            trained = Trained(session, optimizer, good)
            for _ in range(2):
                if refused:
                    with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
                        trained.run(hyper=bad)
                trained.run()
            results.append(harness.table_contents(session, trained.table)[1])
    np.testing.assert_array_equal(results[0], results[1])


def test_an_unknown_optimizer_names_the_known():
    with harness.graph_and_session() as session:
        trained = Trained(session, "gradient_ascent")
        with (
            unharmed(session, trained.table),
            pytest.raises(tf.errors.InvalidArgumentError, match="gradient_ascent.*adagrad"),
        ):
            trained.run()


def test_a_second_stateful_optimizer_is_refused():
    with harness.graph_and_session() as session:
        trained = Trained(session, "momentum", [0.1, 0.9])
        other = native.ops.sok_apply_gradients(
            handle=trained.table.handle,
            indices=tf.constant([0], tf.int64),
            values=tf.ones([1, DIM]),
            hyper=[0.1, 0.1, 0.0],
            optimizer="adagrad",
        )
        trained.run()
        with (
            unharmed(session, trained.table),
            pytest.raises(tf.errors.FailedPreconditionError, match=f"{NAME}.*momentum"),
        ):
            session.run(other)
        trained.run()


def weighted_lookup(table, ids, weights):
    """(plan, output) of a weighted lookup of one bag."""
    result = native.ops.sok_group_lookup(
        handles=[table.handle],
        ids=[tf.constant(ids, tf.int64)],
        bags=[tf.constant([0, len(ids)], tf.int64)],
        weights=[tf.constant(weights, tf.float32)],
        training=True,
        num_lookups=1,
        dims=[table.dim],
        table_of=[0],
        layouts=["ragged"],
        combiners=["sum"],
        weighted=[True],
        slots=[0],
    )
    return result.plan, result.outputs[0]


def gradient_op(table, plan, gradients, weighted=(True,), num_weights=1):
    return native.ops.sok_group_lookup_grad(
        handles=[table.handle],
        plan=plan,
        gradients=gradients,
        num_weights=num_weights,
        dims=[table.dim],
        weighted=list(weighted),
    )


@pytest.mark.parametrize(
    "gradients",
    [
        lambda: [tf.ones([2, DIM])],
        lambda: [tf.ones([1, DIM + 1])],
        lambda: [tf.ones([0, DIM])],
        lambda: [tf.ones([])],
        lambda: [tf.ones([1, DIM]), tf.ones([1, DIM])],
    ],
)
def test_gradients_that_do_not_fit_their_lookup(gradients):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        plan, _ = weighted_lookup(table, [1, 2], [1.0, 1.0])
        given = gradients()
        result = gradient_op(table, plan, given, weighted=[True] * len(given), num_weights=len(given))
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not fit"):
            session.run(result.values)


@pytest.mark.parametrize(
    "plan",
    [
        lambda: tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=3, element_dtype=tf.int64),
        lambda: empty_tensor(types_pb2.DT_VARIANT),
    ],
)
def test_a_plan_that_is_none(plan):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        result = gradient_op(table, plan(), [tf.ones([1, DIM])])
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="plan"):
            session.run(result.values)


def test_the_plan_of_a_lookup_without_weights():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        rows = table.sparse_read(tf.constant([1, 2], tf.int64))
        result = gradient_op(table, rows.op.outputs[-1], [tf.ones([2, DIM])])
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not fit"):
            session.run([result.values, result.weight_gradients])


def test_a_number_of_weights_that_does_not_fit():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        plan, _ = weighted_lookup(table, [1, 2], [1.0, 1.0])
        result = gradient_op(table, plan, [tf.ones([1, DIM])], weighted=[True], num_weights=0)
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="weight"):
            session.run(result.values)


def test_the_plan_of_a_lookup_in_a_wider_table():
    with harness.graph_and_session() as session:
        wide = sok.EmbeddingVariable(name=NAME, dim=1024)
        plan, _ = weighted_lookup(wide, [1, 2], [1.0, 1.0])
        narrow = native.ops.sok_group_lookup_grad(
            handles=[wide.handle],
            plan=plan,
            gradients=[tf.ones([1, DIM])],
            num_weights=1,
            dims=[DIM],
            weighted=[True],
        )
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{NAME}.*1024.*{DIM}"):
            session.run([narrow.values, narrow.weight_gradients])


def test_the_plan_of_a_lookup_in_a_larger_table():
    """Its row numbers are not there."""
    with harness.graph_and_session() as session:
        large = sok.EmbeddingVariable(name="large_table", dim=DIM)
        small = sok.EmbeddingVariable(name=NAME, dim=DIM)
        plan, _ = weighted_lookup(large, list(range(5000)), [1.0] * 5000)
        result = gradient_op(small, plan, [tf.ones([1, DIM])])
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            session.run([result.values, result.weight_gradients])
        assert session.run(small.size()) == 0


def empty_tensor(dtype, shape=(0,)):
    """A constant without elements, of a dtype that tf.constant does not make."""
    proto = tensor_pb2.TensorProto(dtype=dtype)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return (
        tf.compat.v1.get_default_graph()
        .create_op(
            "Const",
            [],
            [tf.as_dtype(dtype)],
            attrs={
                "value": tf.compat.v1.AttrValue(tensor=proto),
                "dtype": tf.compat.v1.AttrValue(type=dtype),
            },
        )
        .outputs[0]
    )


HANDLES = {
    "no handle": lambda: empty_tensor(types_pb2.DT_RESOURCE),
    "the handle of a variable": lambda: tf.Variable([1.0]).handle,
    "the handle of a queue": lambda: tf.queue.FIFOQueue(3, [tf.int64]).queue_ref,
    "two handles": lambda: tf.stack([sok.EmbeddingVariable(name="other", dim=DIM).handle] * 2),
}

USES = {
    "lookup": lambda handle: native.ops.sok_group_lookup(
        handles=[handle],
        ids=[tf.constant([1], tf.int64)],
        bags=[],
        weights=[],
        training=True,
        num_lookups=1,
        dims=[DIM],
        table_of=[0],
        layouts=["dense"],
        combiners=["none"],
        weighted=[False],
        slots=[0],
    ).outputs[0],
    "apply": lambda handle: native.ops.sok_apply_gradients(
        handle=handle,
        indices=tf.constant([0], tf.int64),
        values=tf.ones([1, DIM]),
        hyper=[1.0],
        optimizer="sgd",
    ),
    "initialize": lambda handle: native.ops.sok_initialize_table(handle, dim=DIM),
    "size": lambda handle: native.ops.sok_table_size(handle),
    "export": lambda handle: native.ops.sok_table_export(handle, dim=DIM).keys,
    "assign": lambda handle: native.ops.sok_table_assign(
        handle, keys=tf.constant([1], tf.int64), values=tf.ones([1, DIM])
    ),
    "dump": lambda handle: native.ops.sok_dump_to_file(handle, "unused"),
    "restore": lambda handle: native.ops.sok_restore_from_file(handle, "unused"),
}


@pytest.mark.parametrize("kind", HANDLES)
@pytest.mark.parametrize("use", USES)
def test_handles_of_another_kind(use, kind):
    with harness.graph_and_session() as session:
        op = USES[use](HANDLES[kind]())
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(op)
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        rows = tf.nn.embedding_lookup(table, [1])
        session.run(table.initializer)
        assert session.run(rows).shape == (1, DIM)


def test_is_initialized_of_another_kind_is_false():
    with harness.graph_and_session() as session:
        assert not session.run(native.ops.sok_table_is_initialized(tf.Variable([1.0]).handle))


def test_one_table_twice_in_the_handles_of_a_group():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        result = native.ops.sok_group_lookup(
            handles=[table.handle, table.handle],
            ids=[tf.constant([1], tf.int64)] * 2,
            bags=[],
            weights=[],
            training=True,
            num_lookups=2,
            dims=[DIM, DIM],
            table_of=[0, 1],
            layouts=["dense"] * 2,
            combiners=["none"] * 2,
            weighted=[False] * 2,
            slots=[0] * 2,
        )
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{NAME}.*twice"):
            session.run(result.outputs)
        assert session.run(table.size()) == 0


def test_a_gradient_after_the_table_was_made_anew():
    """The rows that the lookup read are gone by then; whoever comes first, nothing reads past the table."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        ids = tf.range(3000, dtype=tf.int64)
        splits = tf.constant([0, 3000], tf.int64)
        weights = tf.ones([3000])
        lookup = group.RaggedLookup(table, tf.RaggedTensor.from_row_splits(ids, splits), "sum", weights)
        output = group.lookup_group([lookup])[0]
        with tf.control_dependencies([output]):
            anew = native.ops.sok_initialize_table(table.handle, dim=DIM)
        with tf.control_dependencies([anew]):
            late = tf.identity(tf.ones([1, DIM]))
        gradients = tf.gradients(output, [table, weights], grad_ys=late)
        step = tf.compat.v1.train.GradientDescentOptimizer(1.0).apply_gradients([(gradients[0], table)])
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            session.run(gradients[1])
        with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            session.run(step)
        assert session.run(table.size()) == 0
