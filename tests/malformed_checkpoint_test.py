"""Tensors that are no checkpoint of the table are refused, and the table stays as it was."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import native

DIM = 2
NAME = "sound_table"
FIELDS = ["keys", "values", "slots", "optimizer", "hyper"]


class Imported:
    """A trained table, what its export gave, and an import all of whose inputs are fed."""

    def __init__(self, session, optimizer=None):
        self.session = session
        self.table = sok.EmbeddingVariable(name=NAME, dim=DIM, capacity=5)
        rows = tf.nn.embedding_lookup(self.table, [10, 20, 30])
        optimizer = optimizer or tf.compat.v1.train.AdagradOptimizer(0.1)
        self.step = optimizer.minimize(tf.reduce_sum(tf.square(rows)), var_list=[self.table])
        self.export = native.ops.sok_table_export(self.table.handle, dim=DIM)
        dtypes = [tf.int64, tf.float32, tf.float32, tf.string, tf.float32]
        self.inputs = [tf.compat.v1.placeholder(dtype) for dtype in dtypes]
        self.op = native.ops.sok_table_import(self.table.handle, *self.inputs)
        harness.initialize(session)
        for _ in range(2):
            session.run(self.step)
        self.good = dict(zip(FIELDS, session.run(list(self.export)), strict=True))

    def run(self, **changed):
        values = {**self.good, **changed}
        self.session.run(self.op, dict(zip(self.inputs, values.values(), strict=True)))

    def state(self):
        return self.session.run(list(self.export))


CASES = {
    "keys of rank 0": {"keys": 10},
    "keys of rank 2": {"keys": [[10, 20, 30]]},
    "fewer keys": {"keys": [10, 20]},
    "a key twice": {"keys": [10, 20, 10]},
    "values of rank 1": {"values": np.zeros([6])},
    "fewer values": {"values": np.zeros([2, DIM])},
    "values too narrow": {"values": np.zeros([3, DIM - 1])},
    "values too wide": {"values": np.zeros([3, DIM + 1])},
    "fewer slots": {"slots": np.zeros([2, DIM])},
    "slots of rank 1": {"slots": np.zeros([6])},
    "slots too narrow": {"slots": np.zeros([3, DIM - 1])},
    "slots too wide": {"slots": np.zeros([3, DIM + 1])},
    "no slots": {"slots": np.zeros([3, 0])},
    "no optimizer": {"optimizer": np.array([], object)},
    "three optimizers": {"optimizer": np.array([b"adagrad", b"", b""], object)},
    "an unknown optimizer": {"optimizer": np.array([b"gradient_ascent", b""], object)},
    "another optimizer": {"optimizer": np.array([b"lazy_adam", b""], object)},
    "no hyper-parameters": {"hyper": np.zeros([0])},
    "too many hyper-parameters": {"hyper": np.zeros([9])},
    "NaN for a hyper-parameter": {"hyper": [np.nan, 0.1, 0.0]},
}


@pytest.mark.parametrize("case", CASES)
def test_tensors_that_do_not_fit(case):
    with harness.graph_and_session() as session:
        imported = Imported(session)
        before = imported.state()
        with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.DataLossError), match=NAME):
            imported.run(**CASES[case])
        for was, now in zip(before, imported.state(), strict=True):
            np.testing.assert_array_equal(now, was)
        imported.run()
        session.run(imported.step)


# What becomes of the state of an exact Adam, which has a length and a history of its own.
DAMAGES = {
    "one byte": lambda state: b"x",
    "seven zeros": lambda state: b"\x00" * 7,
    "24 zeros": lambda state: b"\x00" * 24,
    "4096 zeros": lambda state: b"\x00" * 4096,
    "64 ones": lambda state: b"\xff" * 64,
    "large numbers": lambda state: b"\x7f" * 24,
    "cut": lambda state: state[:-5],
    "longer": lambda state: state + b"\x00" * 8,
    "turned bits": lambda state: bytes(byte ^ 0x55 for byte in state),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_of_the_exact_adam(damage):
    with harness.graph_and_session() as session:
        imported = Imported(session, tf.compat.v1.train.AdamOptimizer(0.1))
        name, good = imported.good["optimizer"]
        state = DAMAGES[damage](good)
        before = imported.state()
        with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.DataLossError), match=NAME):
            imported.run(optimizer=np.array([name, state], object))
        for was, now in zip(before, imported.state(), strict=True):
            np.testing.assert_array_equal(now, was)
        session.run(imported.step)


def test_more_rows_than_the_capacity():
    with harness.graph_and_session() as session:
        imported = Imported(session)
        before = imported.state()
        with pytest.raises(tf.errors.ResourceExhaustedError, match=f"{NAME}.*5"):
            imported.run(keys=np.arange(6), values=np.zeros([6, DIM]), slots=np.zeros([6, DIM]))
        for was, now in zip(before, imported.state(), strict=True):
            np.testing.assert_array_equal(now, was)


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([1, 2], np.zeros([2, DIM + 1])),
        ([1, 2], np.zeros([3, DIM])),
        ([1, 2], np.zeros([4])),
        ([[1, 2]], np.zeros([2, DIM])),
        ([1, 1], np.zeros([2, DIM])),
    ],
)
def test_rows_to_assign_that_do_not_fit(keys, values):
    with harness.graph_and_session() as session:
        table = Imported(session).table
        fed = tf.compat.v1.placeholder(tf.int64), tf.compat.v1.placeholder(tf.float32)
        assign = native.ops.sok_table_assign(table.handle, *fed)
        before = harness.table_contents(session, table)
        with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            session.run(assign, dict(zip(fed, (keys, values), strict=True)))
        for was, now in zip(before, harness.table_contents(session, table), strict=True):
            np.testing.assert_array_equal(now, was)
