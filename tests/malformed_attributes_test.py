"""Attributes of a lookup op that contradict each other or its table are an error, never a crash."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import native
from sparse_operation_kit.lookup import group

DIM = 2
NAME = "sound_table"


SOUND = {
    "num_outputs": 1,
    "dims": [DIM],
    "table_of": [0],
    "layouts": ["dense"],
    "combiners": ["none"],
    "weighted": [False],
    "slots": [0],
}
CONTRADICTIONS = [
    {"dims": [DIM, DIM]},
    {"table_of": [1]},
    {"table_of": [-1]},
    {"table_of": [0, 0]},
    {"layouts": ["dense", "dense"]},
    {"layouts": ["ragged"], "combiners": ["sum"]},
    {"layouts": ["heap"]},
    {"combiners": ["sum"]},
    {"combiners": []},
    {"combiners": ["max"]},
    {"weighted": [True]},
    {"slots": [-1]},
    {"slots": []},
    {"num_outputs": 2},
    {"num_outputs": 0},
]


def test_attributes_that_do_not_fit():
    """Contradicting attributes are an error when the op is made or when it runs."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        size = table.size()

        def look_up(attributes):
            result = native.ops.sok_group_lookup(
                handles=[table.handle],
                ids=[tf.constant([1], tf.int64)],
                bags=[],
                dense_shapes=[],
                weights=[],
                training=True,
                **{**SOUND, **attributes},
            )
            session.run(result.outputs[0])

        harness.initialize(session)
        for attributes in CONTRADICTIONS:
            with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
                look_up(attributes)
            assert session.run(size) == 0
        look_up({})
        assert session.run(size) == 1


def test_a_dim_that_is_not_the_tables():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        table.dim = 5
        rows = group.lookup_group([group.DenseLookup(table, tf.constant([1], tf.int64))])[0]
        harness.initialize(session)
        table.dim = DIM
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{NAME}.*{DIM}.*5"):
            session.run(rows)


def test_a_placement_that_does_not_fit_the_ranks():
    with harness.graph_and_session() as session:
        handle = native.ops.sok_table(shared_name=NAME)
        for placement in (
            *("", "by_keys", "one_rank:1", "one_rank:-1"),
            *("ranges:0", "ranges:0,1,2", "ranges:1,2", "\x00"),
        ):
            op = native.ops.sok_initialize_table(handle, [], dim=DIM, placement=placement)
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                session.run(op)
            assert f"'{NAME}'" in str(error.value)
            assert repr(placement)[1:-1] in str(error.value)


def test_a_dim_that_no_memory_holds():
    with harness.graph_and_session() as session:
        handle = native.ops.sok_table(shared_name=NAME)
        for dim in (2**28 + 1, 2**40, 2**62, 2**63 - 1):
            op = native.ops.sok_initialize_table(handle, [], dim=dim)
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"{NAME}.*{dim}"):
                session.run(op)


def test_arguments_that_are_not_the_initializers():
    with harness.graph_and_session() as session:
        handle = native.ops.sok_table(shared_name=NAME)
        for initializer, arguments in (
            ("constant", []),
            ("constant", [1.0, 2.0]),
            ("uniform", [1.0]),
            ("normal", []),
        ):
            op = native.ops.sok_initialize_table(
                handle, [], dim=DIM, initializer=initializer, initializer_args=arguments
            )
            with pytest.raises(tf.errors.InvalidArgumentError, match=initializer):
                session.run(op)


@pytest.mark.parametrize(
    ("kind", "rows", "message"),
    [
        ("given", [], "0 tensors of initial rows, not 1"),
        ("given", [np.zeros([3, DIM]), np.zeros([3, DIM])], "2 tensors of initial rows, not 1"),
        ("uniform", [np.zeros([3, DIM])], "1 tensors of initial rows, not 0"),
        ("given", [np.zeros([DIM])], r"shape \[.*\], not \[rows, "),
        ("given", [np.zeros([3, DIM + 1])], r"shape \[3,.*\], not \[rows, "),
        ("given", [np.zeros([0, DIM])], r"shape \[0,.*\], not \[rows, "),
        ("given", [np.full([3, DIM], np.inf)], "row 0, column 0 is inf"),
    ],
)
def test_initial_rows_that_do_not_fit(kind, rows, message):
    with harness.graph_and_session() as session:
        handle = native.ops.sok_table(shared_name=NAME)
        given = [tf.constant(values, tf.float32) for values in rows]
        op = native.ops.sok_initialize_table(handle, given, dim=DIM, initializer=kind)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"'{NAME}'.*{message}"):
            session.run(op)
