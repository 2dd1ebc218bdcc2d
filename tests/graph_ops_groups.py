"""Groups of lookups in graphs that do not run, for tests of graph_ops.

Also a plugin of pytest: a test file whose `pytest_plugins` names this module has its fixtures.
"""

import types

import pytest
import tensorflow as tf

import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import native
from sparse_operation_kit.lookup import group

DIMS = {"a": 4, "b": 2, "c": 3}


@pytest.fixture
def default_graph():
    """A graph of the test's own."""
    with tf.Graph().as_default():
        yield


@pytest.fixture
def over_ranks(monkeypatch):
    """Lookups are built as over several ranks."""
    monkeypatch.setattr(group, "communicator", lambda: types.SimpleNamespace(size=2))


@pytest.fixture(params=["one rank", "over ranks"])
def is_sharded(request):
    """Whether lookups are built as over several ranks."""
    if request.param == "over ranks":
        request.getfixturevalue("over_ranks")
    return request.param == "over ranks"


def make_table(name):
    return sok.EmbeddingVariable(name, DIMS[name])


def make_bags():
    return tf.SparseTensor([[0, 0], [1, 0], [1, 1]], tf.constant([1, 2, 3], tf.int64), [2, 2])


def make_ragged():
    return tf.RaggedTensor.from_row_lengths(tf.constant([4, 5], tf.int64), [2, 0])


def make_lookup_with_weights_at_places(table):
    bags = make_bags()
    weights = tf.SparseTensor(tf.identity(bags.indices), tf.ones([3]), bags.dense_shape)
    return group.SparseLookup(table, bags, "sqrtn", weights)


LAYOUTS = {
    "sparse": lambda table: group.SparseLookup(table, make_bags(), "mean"),
    "sparse with weights": lambda table: group.SparseLookup(table, make_bags(), "sum", tf.ones([3])),
    "sparse with weights at places": make_lookup_with_weights_at_places,
    "ragged": lambda table: group.RaggedLookup(table, make_ragged(), "sum"),
    "ragged with weights": lambda table: group.RaggedLookup(table, make_ragged(), "sum", tf.ones([2])),
    "dense": lambda table: group.DenseLookup(table, tf.constant([[1, 2]], tf.int64)),
}
GROUPS = [
    *([layout] for layout in LAYOUTS),
    ["dense", "ragged", "sparse with weights"],
    ["ragged with weights", "sparse with weights at places", "sparse"],
]


class Model:
    """A group with a lookup for each layout, in tables that are not in the group's order."""

    def __init__(self, layouts):
        self.tables = [make_table(name) for name in ("c", "a", "b")[: len(layouts)]]
        self.lookups = [LAYOUTS[layout](table) for layout, table in zip_equal(layouts, self.tables)]
        self.outputs = group.lookup_group(self.lookups)
        self.loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in self.outputs])
        # A group orders its tables by name.
        self.in_order = sorted(self.tables, key=lambda table: table.m_var_name)

    def gradients(self):
        """The gradients of the tables, as TensorFlow gives them."""
        return tf.gradients(self.loss, self.tables)


def only(type_):
    """The only op of a type in the graph."""
    (op,) = [op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == type_]
    return op


def are_same(tensors, expected):
    return len(tensors) == len(expected) and all(a is b for a, b in zip_equal(tensors, expected))


def divided(gradient, divisor):
    """A gradient as collective training averages it."""
    values = native.ops.sok_divide_gradients(gradient.values, divisor=divisor)
    return tf.IndexedSlices(values, gradient.indices)
