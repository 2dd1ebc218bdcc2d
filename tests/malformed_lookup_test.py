"""Malformed inputs of lookups and gradients are errors that name the variable; the session stays usable."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import native

session = harness.session

DIM = 2
NAME = "sound_table"


class Fed:
    """An op of a table whose inputs are all fed, with shapes that are unknown when the graph is built."""

    def __init__(self, session, table, op, inputs, good):
        self.session, self.op, self.inputs, self.good = session, op, inputs, good
        self._reader = harness.TableReader(table)
        harness.initialize(session)

    def contents(self):
        """The table's keys and rows."""
        return self._reader.read(self.session)[0]

    def run(self, **changed):
        values = {**self.good, **changed}
        return self.session.run(self.op, {self.inputs[name]: value for name, value in values.items()})


class Lookup(Fed):
    def __init__(self, session, layout, combiner="sum", weighted=False, slots=0, dim=DIM):
        table = sok.EmbeddingVariable(name=NAME, dim=dim)
        place = tf.compat.v1.placeholder
        inputs = {"ids": place(tf.int64), "training": place(tf.bool)}
        bags = {"sparse": ["indices"], "ragged": ["row_splits"], "dense": []}[layout]
        dense_shapes = ["dense_shape"] if layout == "sparse" else []
        inputs.update({name: place(tf.int64) for name in bags + dense_shapes})
        if weighted:
            inputs["weights"] = place(tf.float32)
        result = native.ops.sok_group_lookup(
            handles=[table.handle],
            ids=[inputs["ids"]],
            bags=[inputs[name] for name in bags],
            dense_shapes=[inputs[name] for name in dense_shapes],
            weights=[inputs["weights"]] if weighted else [],
            training=inputs["training"],
            num_outputs=1,
            dims=[dim],
            table_of=[0],
            layouts=[layout],
            combiners=["none" if layout == "dense" else combiner],
            weighted=[weighted],
            slots=[slots],
        )
        # Four keys, in bags 0, 0, 2 and 3 of four bags.
        good = {
            "ids": [10, 20, 30, 40],
            "training": True,
            "indices": [[0, 0], [0, 1], [2, 0], [3, 0]],
            "dense_shape": [4, 2],
            "row_splits": [0, 2, 2, 3, 4],
            "weights": [1.0, 2.0, 0.5, -1.0],
        }
        good = {name: good[name] for name in inputs}
        super().__init__(session, table, result.outputs[0], inputs, good)


@contextlib.contextmanager
def unchanged(fed):
    """Checks that the table does not change."""
    before = fed.contents()
    yield
    harness.assert_equal_arrays(before, fed.contents())


@contextlib.contextmanager
def unharmed(lookup):
    """For a block of failing lookups. Checks that afterwards the table and a good lookup are unchanged."""
    before = lookup.run()
    with unchanged(lookup):
        yield
    np.testing.assert_array_equal(lookup.run(), before)


def assert_refused(lookup, cases, message):
    """Checks each case of changed inputs by itself. pytest shows what is printed, if one fails."""
    for case, changed in cases.items():
        print(case)
        with unharmed(lookup), pytest.raises(tf.errors.InvalidArgumentError, match=message):
            lookup.run(**changed)


NEW = [50, 60, 70, 80]  # keys that a lookup would insert

SPARSE = {
    "ids of rank 0": {"ids": 10},
    "ids of rank 2": {"ids": [[10, 20], [30, 40]]},
    "fewer ids than indices": {"ids": [50, 60, 70]},
    "more ids than indices": {"ids": [*NEW, 90]},
    "no ids but indices": {"ids": np.zeros([0], np.int64)},
    "indices of rank 0": {"indices": 3},
    "indices of rank 1": {"indices": [0, 0, 2, 3]},
    "indices of rank 3": {"indices": np.zeros([4, 2, 1], np.int64)},
    "indices without columns": {
        "indices": np.zeros([4, 0], np.int64),
        "dense_shape": np.zeros([0], np.int64),
    },
    "a negative row": {"ids": NEW, "indices": [[0, 0], [0, 1], [-1, 0], [3, 0]]},
    "a row past the last": {"ids": NEW, "indices": [[0, 0], [0, 1], [2, 0], [4, 0]]},
    "a row of 2^62": {"ids": NEW, "indices": [[2**62, 0], [0, 1], [2, 0], [3, 0]]},
    "the least row": {"ids": NEW, "indices": [[0, 0], [0, 1], [2, 0], [-(2**63), 0]]},
    "dense_shape of rank 0": {"dense_shape": 4},
    "dense_shape of rank 2": {"dense_shape": [[4, 2]]},
    "an empty dense_shape": {"dense_shape": np.zeros([0], np.int64)},
    "ids of three dimensions": {
        "ids": NEW,
        "indices": np.zeros([4, 3], np.int64),
        "dense_shape": [4, 2, 1],
    },
    "ids of one dimension": {"ids": NEW, "indices": [[0], [1], [2], [3]], "dense_shape": [4]},
    "a dense_shape of other rank": {"dense_shape": [4, 2, 1]},
    "negative rows": {"ids": NEW, "dense_shape": [-1, 2]},
    "rows of the least int64": {"ids": NEW, "dense_shape": [-(2**63), 2]},
    "no rows but ids": {"ids": NEW, "dense_shape": [0, 2]},
    "2^31 rows": {"ids": NEW, "dense_shape": [2**31, 2]},
    "2^40 rows": {"ids": NEW, "dense_shape": [2**40, 2]},
    "2^62 rows": {"ids": NEW, "dense_shape": [2**62, 2]},
    "the most rows": {"ids": NEW, "dense_shape": [2**63 - 1, 2]},
}

RAGGED = {
    "ids of rank 2": {"ids": [[10, 20], [30, 40]]},
    "no splits": {"ids": NEW, "row_splits": np.zeros([0], np.int64)},
    "splits of rank 0": {"row_splits": 4},
    "splits of rank 2": {"row_splits": [[0, 2, 4]]},
    "splits that begin late": {"ids": NEW, "row_splits": [1, 2, 4]},
    "splits that begin below zero": {"ids": NEW, "row_splits": [-2, 2, 4]},
    "splits that fall": {"ids": NEW, "row_splits": [0, 3, 2, 4]},
    "splits that overshoot and come back": {"ids": NEW, "row_splits": [0, 2**40, 4]},
    "splits that end early": {"ids": NEW, "row_splits": [0, 2, 3]},
    "splits that end late": {"ids": NEW, "row_splits": [0, 2, 5]},
    "splits that end at 2^62": {"ids": NEW, "row_splits": [0, 2, 2**62]},
}

WEIGHTS = {
    "NaN": [1.0, np.nan, 1.0, 1.0],
    "infinity": [1.0, 1.0, 1.0, np.inf],
    "minus infinity": [-np.inf, 1.0, 1.0, 1.0],
    "too few": [1.0, 1.0, 1.0],
    "too many": [1.0] * 5,
    "none": np.zeros([0]),
    "rank 2": [[1.0, 1.0], [1.0, 1.0]],
    "rank 0": 1.0,
}


def test_sparse_ids(session):
    assert_refused(Lookup(session, "sparse"), SPARSE, NAME)


def test_ragged_ids(session):
    assert_refused(Lookup(session, "ragged"), RAGGED, NAME)


@pytest.mark.parametrize("layout", ["sparse", "ragged"])
def test_weights(session, layout):
    lookup = Lookup(session, layout, "mean", weighted=True)
    cases = {case: {"ids": NEW, "weights": weights} for case, weights in WEIGHTS.items()}
    assert_refused(lookup, cases, f"{NAME}.*weight")


def test_the_message_names_the_value(session):
    lookup = Lookup(session, "sparse")
    for value, changed in (
        ("7", {"indices": [[0, 0], [0, 1], [7, 0], [3, 0]]}),
        (str(2**40), {"dense_shape": [2**40, 2]}),
        ("-5", {"dense_shape": [-5, 2]}),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{NAME}.*{value}"):
            lookup.run(**changed)


def test_an_output_that_memory_cannot_hold(session):
    lookup = Lookup(session, "sparse", dim=4096)
    with unharmed(lookup), pytest.raises(tf.errors.ResourceExhaustedError, match=NAME):
        lookup.run(ids=NEW, dense_shape=[2**31 - 1, 2])


def test_a_number_of_rows_that_slots_do_not_divide(session):
    lookup = Lookup(session, "sparse", slots=3)
    lookup.good["dense_shape"] = [6, 2]
    for rows in (1, 2, 4, 5):
        sound = {"ids": NEW[:1], "indices": [[0, 0]], "dense_shape": [rows, 2]}
        assert_refused(lookup, {"sound but for the rows": sound}, f"{NAME}.*{rows} rows.*3")


def test_training_of_wrong_shape(session):
    shapes = {"two": [True, False], "none": np.zeros([0], bool), "rank 2": [[True, True]]}
    cases = {case: {"ids": NEW, "training": training} for case, training in shapes.items()}
    assert_refused(Lookup(session, "dense"), cases, "training")


@pytest.mark.parametrize("layout", ["sparse", "ragged"])
def test_zero_bags(session, layout):
    lookup = Lookup(session, layout)
    empty = np.zeros([0], np.int64)
    given = {"ids": empty}
    if layout == "sparse":
        given.update({"indices": np.zeros([0, 2], np.int64), "dense_shape": [0, 2]})
    else:
        given.update({"row_splits": [0]})
    with unharmed(lookup):
        assert lookup.run(**given).shape == (0, DIM)


@pytest.mark.parametrize("training", ["yes", 3.5, 1, [True, False], {}])
def test_training_that_is_no_bool(session, training):
    layer = sok.All2AllDenseEmbedding(10, DIM, 1, 1, dynamic_input=True)
    with pytest.raises(TypeError, match="training must be a bool"):
        layer(tf.constant([1], tf.int64), training=training)


def test_a_training_tensor_of_another_kind(session):
    layer = sok.All2AllDenseEmbedding(10, DIM, 1, 1, dynamic_input=True)
    with pytest.raises(TypeError, match="training is int32"):
        layer(tf.constant([1], tf.int64), training=tf.constant(1))
    with pytest.raises(ValueError, match="training has shape"):
        layer(tf.constant([1], tf.int64), training=tf.constant([True, False]))


ROWS = 3


class Trained(Fed):
    """A table with three rows, and the op that applies gradients to it."""

    def __init__(self, session, optimizer="sgd", hyper=(1.0,), indices_unique=False):
        self.table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        rows = tf.nn.embedding_lookup(self.table, [10, 20, 30])
        place = tf.compat.v1.placeholder
        inputs = {"indices": place(tf.int64), "values": place(tf.float32), "hyper": place(tf.float32)}
        good = {"indices": [0, 2], "values": [[1.0, 1.0], [2.0, 2.0]], "hyper": hyper}
        op = native.ops.sok_apply_gradients(
            handle=self.table.handle, optimizer=optimizer, indices_unique=indices_unique, **inputs
        )
        super().__init__(session, self.table, op, inputs, good)
        session.run(rows)


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


@pytest.mark.parametrize("indices_unique", [False, True])
def test_gradients(session, indices_unique):
    trained = Trained(session, indices_unique=indices_unique)
    for case, changed in CASES.items():
        print(case)  # pytest shows it, if the case fails.
        with unchanged(trained), pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            trained.run(**changed)
        before = trained.contents()[1]
        trained.run()
        np.testing.assert_allclose(trained.contents()[1], before - [[1, 1], [0, 0], [2, 2]], rtol=1e-6)


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
    """A step with wrong ones changes nothing: with a good step before and after it, two steps are taken."""
    results = []
    for refused in (False, True):
        with harness.graph_and_session() as session:
            trained = Trained(session, optimizer, good)
            for _ in range(2):
                if refused:
                    with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
                        trained.run(hyper=bad)
                trained.run()
            results.append(trained.contents()[1])
    np.testing.assert_array_equal(results[0], results[1])


def test_an_unknown_optimizer_names_the_known(session):
    trained = Trained(session, "gradient_ascent")
    with unchanged(trained):
        with pytest.raises(tf.errors.InvalidArgumentError, match="gradient_ascent.*adagrad"):
            trained.run()


def test_a_second_stateful_optimizer_is_refused(session):
    trained = Trained(session, "momentum", [0.1, 0.9])
    other = native.ops.sok_apply_gradients(
        handle=trained.table.handle,
        indices=tf.constant([0], tf.int64),
        values=tf.ones([1, DIM]),
        hyper=[0.1, 0.1, 0.0],
        optimizer="adagrad",
    )
    trained.run()
    with unchanged(trained):
        with pytest.raises(tf.errors.FailedPreconditionError, match=f"{NAME}.*momentum"):
            session.run(other)
    trained.run()
