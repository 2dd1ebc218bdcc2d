# Tags: versions
# Not on GPUs: graphs, names and libraries
"""The module that reads graphs: names and handles of ops, tables, what may run before a step, unchanged
gradients. Nothing runs. Only this module of the package refers to its ops' types, and to their inputs and
outputs by position."""

import ast
import pathlib
import types

import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_util, lookup_ops

import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import native
from sparse_operation_kit.compat.internals import op_definition
from sparse_operation_kit.graphs import graph_ops
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


v1 = tf.compat.v1

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


@pytest.mark.parametrize("layouts", GROUPS, ids=", ".join)
def test_what_tf_gradients_returns_is_untouched(layouts, is_sharded):
    model = Model(layouts)
    found = [
        graph_ops.untouched_gradient(gradient, table.handle)
        for gradient, table in zip_equal(model.gradients(), model.tables)
    ]
    assert [position for _, position in found] == [model.in_order.index(table) for table in model.tables]
    (group_gradient,) = {gradient for gradient, _ in found}
    assert group_gradient.divisor == 1
    assert group_gradient.is_over_ranks == is_sharded
    assert are_same(group_gradient.handles, [table.handle for table in model.in_order])
    left_by = graph_ops.GROUP_SERVE if is_sharded else graph_ops.GROUP_LOOKUP
    assert group_gradient.lookup.op is only(left_by)
    # On several ranks, gradients of weights are computed from the rows that were sent.
    has_weights = any("weights" in layout for layout in layouts)
    assert group_gradient.reads_rows == (has_weights and not is_sharded)


def test_several_losses_of_one_group_have_one_gradient(is_sharded):
    model = Model(["dense", "sparse"])
    losses = [tf.reduce_sum(output) for output in model.outputs]
    gradients = tf.gradients(losses, model.tables)
    for gradient, table in zip_equal(gradients, model.tables):
        assert graph_ops.untouched_gradient(gradient, table.handle) is not None


def test_losses_that_are_differentiated_one_by_one_have_gradients_of_their_own(is_sharded):
    model = Model(["dense"])
    (table,) = model.tables
    losses = [model.loss, 2 * model.loss]
    gradients = [tf.gradients(loss, table)[0] for loss in losses]
    first, second = (graph_ops.untouched_gradient(gradient, table.handle)[0] for gradient in gradients)
    assert first.op is not second.op
    assert first.lookup is second.lookup


def _sum_of(*gradients):
    return tf.IndexedSlices(
        tf.concat([one.values for one in gradients], 0), tf.concat([one.indices for one in gradients], 0)
    )


def test_a_sum_of_gradients_is_not_untouched(is_sharded):
    model = Model(["dense"])
    (table,) = model.tables
    (again,) = group.lookup_group([LAYOUTS["sparse"](table)])
    (of_two_groups,) = tf.gradients(model.loss + tf.reduce_sum(again), [table])
    by_hand = _sum_of(model.gradients()[0], model.gradients()[0])
    for gradient in (of_two_groups, by_hand):
        assert graph_ops.untouched_gradient(gradient, table.handle) is None
        assert not graph_ops.names_each_row_once(gradient.indices)
        assert graph_ops.comes_from_tables(gradient.indices)


def test_the_gradient_of_another_table_is_not_untouched(is_sharded):
    model = Model(["dense", "sparse"])
    first, second = model.gradients()
    one, other = model.tables
    assert graph_ops.untouched_gradient(first, other.handle) is None
    mixed = [tf.IndexedSlices(first.values, second.indices), tf.IndexedSlices(second.values, first.indices)]
    for gradient in mixed:
        assert graph_ops.untouched_gradient(gradient, one.handle) is None
        assert graph_ops.untouched_gradient(gradient, other.handle) is None


def test_row_numbers_and_sums_of_two_groups_are_not_one_gradient(is_sharded):
    model = Model(["dense"])
    (table,) = model.tables
    (again,) = group.lookup_group([LAYOUTS["sparse"](table)])
    (first,), (second,) = model.gradients(), tf.gradients(again, [table])
    mixed = tf.IndexedSlices(first.values, second.indices)
    assert graph_ops.untouched_gradient(first, table.handle) is not None
    assert graph_ops.untouched_gradient(mixed, table.handle) is None


def test_row_numbers_are_not_taken_for_sums(is_sharded):
    model = Model(["dense", "sparse"])
    first, second = model.gradients()
    table = model.tables[0]
    for values, indices in (
        (first.indices, second.values),
        (first.indices, first.indices),
        (first.values, first.values),
    ):
        assert graph_ops.untouched_gradient(tf.IndexedSlices(values, indices), table.handle) is None


def _gated(gradient):
    return tf.IndexedSlices(tf.identity(gradient.values), tf.identity(gradient.indices))


@pytest.mark.parametrize("change", [lambda g: divided(g, 3), lambda g: _gated(divided(_gated(g), 3))])
def test_the_average_over_ranks_is_told(change, is_sharded):
    model = Model(["dense", "ragged"])
    for gradient, table in zip_equal(model.gradients(), model.tables):
        found = graph_ops.untouched_gradient(change(gradient), table.handle)
        if is_sharded:
            assert found[0].divisor == 3
        else:
            assert found is None  # there is no average on one rank


@pytest.mark.parametrize(
    "change",
    [
        lambda g: divided(divided(g, 2), 2),
        lambda g: tf.IndexedSlices(g.values / 2, g.indices),
        lambda g: tf.IndexedSlices(g.values, g.indices + 0),
        lambda g: tf.clip_by_norm(g, 1.0),
        lambda g: tf.IndexedSlices(tf.ones([1, 3]), tf.constant([0], tf.int64)),
        lambda g: tf.IndexedSlices(g.values, tf.identity(tf.constant([0], tf.int64))),
    ],
    ids=["divided twice", "scaled", "other row numbers", "clipped", "constant", "constant row numbers"],
)
def test_a_changed_gradient_is_not_untouched(change, is_sharded):
    model = Model(["dense"])
    (gradient,) = model.gradients()
    assert graph_ops.untouched_gradient(change(gradient), model.tables[0].handle) is None


def _waiting_for(*ops):
    def gate(gradient):
        with tf.control_dependencies(ops):
            return _gated(gradient)

    return gate


def test_a_gate_may_wait_for_its_own_op_only(is_sharded):
    model = Model(["dense", "sparse"])
    gradient, other = model.gradients()
    handle = model.tables[0].handle
    for awaited in (gradient.values.op, tf.group(gradient.values, other.indices)):
        assert graph_ops.untouched_gradient(_waiting_for(awaited)(gradient), handle) is not None
    stranger = tf.print("a step")
    for awaited in (stranger, tf.group(stranger, gradient.values)):
        gated = _waiting_for(awaited)(gradient)
        assert graph_ops.untouched_gradient(gated, handle) is None
        assert graph_ops.names_each_row_once(gated.indices)


def test_rows_of_one_groups_gradient_are_distinct(is_sharded):
    (gradient,) = Model(["dense"]).gradients()
    assert graph_ops.names_each_row_once(gradient.indices)
    assert graph_ops.names_each_row_once(tf.identity(tf.identity(gradient.indices)))
    assert not graph_ops.names_each_row_once(gradient.indices + 0)
    assert not graph_ops.names_each_row_once(tf.constant([0], tf.int64))
    distinct, places = tf.unique(tf.constant([4, 4]))
    assert graph_ops.names_each_row_once(tf.identity(distinct))
    assert not graph_ops.names_each_row_once(places)


def test_row_numbers_of_tables_are_told_after_any_change(is_sharded):
    (gradient,) = Model(["dense"]).gradients()
    changed = tf.unique(tf.concat([gradient.indices, gradient.indices], 0) * 2)[0]
    for indices in (gradient.indices, changed):
        assert graph_ops.comes_from_tables(indices)
    assert not graph_ops.comes_from_tables(tf.constant([0], tf.int64))


def test_row_numbers_of_tables_are_told_in_a_function(is_sharded):
    (gradient,) = Model(["dense"]).gradients()
    found = []

    @tf.function
    def changed():
        found.append(graph_ops.comes_from_tables(gradient.indices + 0))
        found.append(graph_ops.comes_from_tables(tf.constant([0]) + 0))
        return 0

    changed()
    assert found[:2] == [True, False]


def test_the_model_behind_a_gradient_is_not_searched(is_sharded, monkeypatch):
    (gradient,) = Model(["dense"]).gradients()
    monkeypatch.undo()  # one rank
    found = graph_ops.GROUP_SUM if is_sharded else graph_ops.GROUP_LOOKUP_GRAD
    ids = gradient.indices + 1
    table = make_table("b")
    (rows,) = group.lookup_group([group.DenseLookup(table, ids)])
    (behind,) = tf.gradients(tf.reduce_sum(rows), [table])
    assert found in {op.type for op in graph_ops.ops_behind(ids)}
    assert {op.type for op in graph_ops.ops_behind(behind.indices)} == {graph_ops.GROUP_LOOKUP_GRAD}


def test_ops_behind_a_tensor_are_given_once():
    start = tf.zeros([2])
    joined = tf.add(start + 1.0, start + 2.0)
    behind = list(graph_ops.ops_behind(joined))
    assert behind[0] is joined.op
    assert len(behind) == len(set(behind)) == 6  # three sums, zeros, and the constants 1.0 and 2.0
    assert start.op in behind


PACKAGE = pathlib.Path(sok.__file__).parent


def test_types_are_those_of_registered_ops():
    types = [
        value
        for name, value in vars(graph_ops).items()
        if isinstance(value, str) and value.startswith("Sok") and not name.startswith("_")
    ]
    assert len(types) == len(set(types)) > 10
    # These are in the op library that needs Horovod.
    assert [type_ for type_ in types if op_definition(type_) is None] in (
        [],
        [graph_ops.EXCHANGE, graph_ops.OPAQUE],
    )


# Strings that equal the type of an op of the library, but do not mean the op.
NOT_TYPES = {
    ("ranks/initialize.py", "SokInit"): "the name of the op whose tensor sok.Init returns",
}


def _breaches(tree, path):
    for node in ast.walk(tree):
        # Python 3.7 has another class for strings, with the attribute `s`.
        text = node.value if isinstance(node, ast.Constant) else getattr(node, "s", None)
        if isinstance(text, str):
            is_type = text.startswith("Sok") and op_definition(text) is not None
            if is_type and (path, text) not in NOT_TYPES:
                yield f"{path}:{node.lineno}: the type of an op, {text}"
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            if node.value.attr in ("inputs", "outputs"):
                yield f"{path}:{node.lineno}: inputs or outputs by position"
        elif isinstance(node, ast.Attribute) and node.attr == "value_index":
            yield f"{path}:{node.lineno}: value_index"


def test_no_other_module_reads_ops_by_type_or_position():
    breaches = []
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    for file in files:
        path = file.relative_to(PACKAGE).as_posix()
        if path != "graphs/graph_ops.py":
            breaches += _breaches(ast.parse(file.read_text()), path)
    assert breaches == []


@pytest.mark.parametrize(
    "line",
    ['op.type == "SokGroupSum"', "op.inputs[0]", "op.outputs[num_outputs]", "op.inputs[:2]", "t.value_index"],
)
def test_reading_by_type_or_position_is_found(line):
    assert len(list(_breaches(ast.parse(line), "some.py"))) == 1


@pytest.mark.parametrize(
    "line", ['inputs_of(op)["plan"]', 'native.ops.sok_group_sum(name="Sok")', "op.inputs"]
)
def test_reading_by_name_is_no_breach(line):
    assert list(_breaches(ast.parse(line), "some.py")) == []
