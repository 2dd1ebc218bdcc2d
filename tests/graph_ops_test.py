"""Inputs and outputs of ops by name, handles, tables, and which ops may run before a step. Nothing runs."""

import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_util, lookup_ops

import sparse_operation_kit as sok
from graph_ops_groups import DIMS, LAYOUTS, Model, divided, make_table, only
from sparse_operation_kit import native
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1

pytest_plugins = ["graph_ops_groups"]
pytestmark = pytest.mark.usefixtures("default_graph")


def test_ops_of_tensorflow_have_names_too():
    first, second = tf.split(tf.concat([tf.ones([2]), tf.zeros([2])], axis=0), 2)
    assert list(graph_ops.inputs_of(first.op)) == ["split_dim", "value"]
    assert [len(given) for given in graph_ops.outputs_of(first.op).values()] == [2]
    assert [len(taken) for taken in graph_ops.inputs_of(tf.group(first, second)).values()] == []
    (concat,) = [op for op in v1.get_default_graph().get_operations() if op.type == "ConcatV2"]
    assert len(graph_ops.inputs_of(concat)["values"]) == 2


def test_tables_of_a_graph_are_the_ops_of_their_handles():
    tables = [make_table("b"), make_table("a")]
    group.lookup_group([LAYOUTS["dense"](table) for table in tables])
    found = graph_ops.tables_of(v1.get_default_graph())
    assert found == [table.handle.op for table in tables]


@pytest.mark.parametrize(
    "type_",
    [
        graph_ops.GROUP_ROUTE,
        graph_ops.GROUP_SERVE,
        graph_ops.GROUP_COMBINE,
        graph_ops.GROUP_REDUCE,
        graph_ops.GROUP_SUM,
    ],
)
def test_every_op_of_a_group_over_ranks_leads_to_its_tables(type_, over_ranks):
    Model(["dense", "sparse", "ragged"]).gradients()
    assert graph_ops.table_names(only(type_)) == ["a", "b", "c"]


def test_ops_of_one_rank_lead_to_their_tables():
    gradient, _ = Model(["dense", "sparse"]).gradients()
    for op in (only(graph_ops.GROUP_LOOKUP), gradient.values.op, divided(gradient, 2).values.op):
        assert graph_ops.table_names(op) == ["a", "c"]


def test_an_unknown_table_has_no_name():
    quotients = native.ops.sok_divide_gradients(v1.placeholder(tf.float32, [None, 3]), divisor=2)
    assert graph_ops.table_names(quotients.op) == []
    assert graph_ops.handles_of(quotients.op) == []
    # Its input is a resource, but not the handle of a table.
    assert graph_ops.handles_of(tf.Variable(1.0).read_value().op) == []


def _in_function(table):
    return [tf.function(lambda ids: tf.nn.embedding_lookup(table, ids))(tf.constant([1], tf.int64))]


def _in_while_loop(table):
    def body(i, rows):
        return i + 1, rows + tf.nn.embedding_lookup(table, tf.constant([1], tf.int64))

    return tf.while_loop(lambda i, _: i < 1, body, [tf.constant(0), tf.zeros([1, DIMS["a"]])])


def _in_cond(table):
    return [
        tf.cond(
            v1.placeholder_with_default(True, []),
            lambda: tf.nn.embedding_lookup(table, tf.constant([1], tf.int64)),
            lambda: tf.zeros([1, DIMS["a"]]),
        )
    ]


def _lookups_anywhere(monkeypatch):
    """A list to which every new lookup op is added, in any graph."""
    made = []
    original = native.ops.sok_group_lookup

    def noting(*args, **kwargs):
        result = original(*args, **kwargs)
        made.append(result.plan.op)
        return result

    monkeypatch.setattr(native.ops, "sok_group_lookup", noting)
    return made


@pytest.mark.parametrize("look_up", [_in_function, _in_while_loop, _in_cond])
@pytest.mark.parametrize("of_functions", [True, False], ids=["functions", "control flow ops"])
def test_a_handle_leads_out_of_control_flow(look_up, of_functions, monkeypatch):
    was_enabled = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if of_functions else v1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default():
            made = _lookups_anywhere(monkeypatch)
            table = make_table("a")
            look_up(table)
            assert made
            for op in made:
                (handle,) = graph_ops.handles_of(op)
                assert graph_ops.table_of(handle) is table.handle.op
                assert graph_ops.table_names(op) == ["a"]
    finally:
        (v1.enable_control_flow_v2 if was_enabled else v1.disable_control_flow_v2)()


def test_an_export_in_a_function_names_the_table_that_is_not_differentiated():
    table = sok.EmbeddingVariable("bounded", 2, capacity=5)
    rows = tf.cond(
        v1.placeholder_with_default(True, []), lambda: table.read_value(), lambda: tf.zeros([5, 2])
    )
    with pytest.raises(TypeError, match="'bounded' cannot be differentiated through the result of"):
        tf.gradients(tf.reduce_sum(rows), table)


def _lookup_table(mutable):
    if mutable:
        return lookup_ops.MutableHashTable(tf.int64, tf.int64, 0)
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant([1], tf.int64), tf.constant([2], tf.int64))
    return tf.lookup.StaticHashTable(pairs, 0)


def _read(variable):
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _read_passed_on():
    variable = v1.get_variable("v", initializer=1.0, use_resource=True)
    return tf.raw_ops.ReadVariableOp(resource=tf.identity(variable.handle), dtype=variable.dtype)


def _size_of_array():
    array = tf.raw_ops.TensorArrayV3(size=1, dtype=tf.float32)
    return tf.raw_ops.TensorArraySizeV3(handle=array.handle, flow_in=array.flow)


def _keys():
    return tf.constant([1], tf.int64)


READERS = {
    "a constant": (lambda: tf.constant(1), False),
    "a sum": (lambda: tf.constant(1) + tf.constant(2), False),
    "a placeholder": (lambda: v1.placeholder(tf.int64, []), True),
    "a placeholder with a default": (lambda: v1.placeholder_with_default(1, []), True),
    "a variable": (lambda: _read(v1.get_variable("v", initializer=1.0, use_resource=True)), True),
    "a reference variable": (lambda: v1.get_variable("v", initializer=1.0, use_resource=False), True),
    "a lookup": (lambda: group.lookup_group([LAYOUTS["dense"](make_table("a"))])[0], True),
    "a table that is filled once": (lambda: _lookup_table(mutable=False).lookup(_keys()), False),
    "its size": (lambda: _lookup_table(mutable=False).size(), False),
    "a table that changes": (lambda: _lookup_table(mutable=True).lookup(_keys()), True),
    "its own size": (lambda: _lookup_table(mutable=True).size(), True),
    "an iterator": (
        lambda: v1.data.make_one_shot_iterator(tf.data.Dataset.range(2)).get_next(),
        False,
    ),
    "an array of a loop": (_size_of_array, False),
    "a handle that is passed on": (lambda: tf.identity(make_table("a").handle), False),
    "a variable behind a handle that is passed on": (_read_passed_on, True),
}


@pytest.mark.parametrize("reader", READERS)
def test_state_of_steps_is_told_from_what_a_batch_alone_decides(reader):
    make, expected = READERS[reader]
    assert graph_ops.reads_state_of_steps(make().op) == expected


def test_the_parts_of_lookups_that_read_ids_alone_are_known(over_ranks, monkeypatch):
    Model(["dense"]).gradients()
    monkeypatch.undo()
    with group.looking_ahead():
        Model(["sparse"]).gradients()
    parts = [op for op in v1.get_default_graph().get_operations() if op.type.startswith("SokGroup")]
    assert {op.type for op in parts if graph_ops.needs_no_row(op)} == {
        graph_ops.GROUP_ROUTE,
        graph_ops.GROUP_LOOKUP_AHEAD,
    }
    assert len({op.type for op in parts}) == 8


def test_nodes_of_both_branches_are_searched(monkeypatch):
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", True)  # not the default of version 1.15
    chosen = tf.cond(
        v1.placeholder_with_default(True, []), lambda: tf.nn.relu(tf.ones([])), lambda: tf.tanh(tf.ones([]))
    )
    (conditional,) = [op for op in graph_ops.ops_behind(chosen) if graph_ops.nodes_of_branches(op)]
    assert {"Relu", "Tanh"} < {node.op for node in graph_ops.nodes_of_branches(conditional)}
    assert graph_ops.nodes_of_branches(chosen.op if chosen.op is not conditional else tf.no_op()) == []
