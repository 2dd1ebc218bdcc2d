"""Malformed gradients are an error that names the variable; the table and the session stay usable."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import native

session = harness.session

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
        self.reader = harness.TableReader(self.table)
        harness.initialize(session)
        session.run(rows)

    def contents(self):
        """The table's keys and rows."""
        return self.reader.read(self.session)[0]

    def run(self, **changed):
        values = {**self.good, **changed}
        self.session.run(self.op, {self.inputs[name]: value for name, value in values.items()})


@contextlib.contextmanager
def unharmed(trained):
    """Checks that the table does not change."""
    before = trained.contents()
    yield
    for was, now in zip_equal(before, trained.contents()):
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


@pytest.mark.parametrize("indices_unique", [False, True])
def test_gradients(session, indices_unique):
    trained = Trained(session, indices_unique=indices_unique)
    for case, changed in CASES.items():
        print(case)  # pytest shows it, if the case fails.
        with unharmed(trained), pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
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
    with unharmed(trained):
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
    with unharmed(trained):
        with pytest.raises(tf.errors.FailedPreconditionError, match=f"{NAME}.*momentum"):
            session.run(other)
    trained.run()
