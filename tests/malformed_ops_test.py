# Tags: versions
"""Handles, attributes and plans that do not fit are an error of the op, never a crash.

The other inputs are in `malformed_lookup_test`.
"""

from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat, native
from sparse_operation_kit.embeddings import distributed_embedding
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup import group

session = harness.session

DIM = 2
NAME = "sound_table"
_REFUSED = tf.errors.InvalidArgumentError


def table(dim=DIM, name=NAME):
    return sok.EmbeddingVariable(name=name, dim=dim)


def look_up(handles, ids=(1,), weights=None, **attributes):
    """A lookup of the same ids in each of the handles; with weights, it sums them as one bag."""
    count = len(handles)
    sound = {
        "num_outputs": count,
        "dims": [DIM] * count,
        "table_of": list(range(count)),
        "layouts": ["dense" if weights is None else "ragged"] * count,
        "combiners": ["none" if weights is None else "sum"] * count,
        "weighted": [weights is not None] * count,
        "slots": [0] * count,
    }
    return native.ops.sok_group_lookup(
        handles=handles,
        ids=[tf.constant(ids, tf.int64)] * count,
        bags=[] if weights is None else [tf.constant([0, len(ids)], tf.int64)] * count,
        dense_shapes=[],
        weights=[] if weights is None else [tf.constant(weights, tf.float32)] * count,
        training=True,
        **{**sound, **attributes},
    )


# ---- Handles. ----


def two_handles():
    # TensorFlow stacks handles on CPUs only.
    with tf.device("/CPU:0"):
        return tf.stack([table(name="other").handle] * 2)


HANDLES = {
    "no handle": lambda: harness.empty_tensor(tf.resource),
    "the handle of a variable": lambda: tf.Variable([1.0], **compat.AS_RESOURCE).handle,
    "the handle of a queue": lambda: tf.queue.FIFOQueue(3, [tf.int64]).queue_ref,
    "two handles": two_handles,
}


def raised(stage):
    """The error that a stage reports."""
    return native.ops.sok_raise_failures([stage.code], [stage.message], [0], what="a stage")


USES = {
    "lookup": lambda handle: look_up([handle]).outputs[0],
    "apply": lambda handle: native.ops.sok_apply_gradients(
        handle=handle,
        indices=tf.constant([0], tf.int64),
        values=tf.ones([1, DIM]),
        hyper=[1.0],
        optimizer="sgd",
    ),
    "initialize": lambda handle: native.ops.sok_initialize_table(handle, [], dim=DIM),
    "size": lambda handle: native.ops.sok_table_size(handle),
    "assign": lambda handle: native.ops.sok_table_assign(
        handle, keys=tf.constant([1], tf.int64), values=tf.ones([1, DIM])
    ),
    "dump": lambda handle: raised(
        native.ops.sok_dump_stage(handle, "unused", tf.constant([1], tf.int64), True, stage="begin")
    ),
    "restore": lambda handle: raised(native.ops.sok_restore_stage(handle, "unused", True, stage="check")),
    "save checkpoint": lambda handle: raised(
        native.ops.sok_checkpoint_stage([handle], "unused", tf.constant(0, tf.int64), "", True, stage="begin")
    ),
    "check checkpoint": lambda handle: raised(
        native.ops.sok_check_checkpoint([handle], "unused", True, True, [], names=["unused"])
    ),
    "track changes": lambda handle: native.ops.sok_track_changes([handle]),
}


@pytest.mark.parametrize("kind", HANDLES)
@pytest.mark.parametrize("use", USES)
def test_handles_of_another_kind(session, use, kind):
    op = USES[use](HANDLES[kind]())
    harness.initialize(session)
    with pytest.raises(_REFUSED):
        session.run(op)
    sound = table()
    rows = tf.nn.embedding_lookup(sound, [1])
    session.run(sound.initializer)
    assert session.run(rows).shape == (1, DIM)


def test_is_initialized_of_another_kind_is_false(session):
    handle = HANDLES["the handle of a variable"]()
    assert not session.run(native.ops.sok_table_is_initialized(handle))


def test_one_table_twice_in_the_handles_of_a_group(session):
    one = table()
    result = look_up([one.handle, one.handle])
    harness.initialize(session)
    with pytest.raises(_REFUSED, match=f"{NAME}.*twice"):
        session.run(result.outputs)
    assert session.run(one.size()) == 0


# ---- Attributes. ----

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


def test_attributes_of_a_lookup_that_do_not_fit(session):
    """Contradicting attributes are an error when the op is made or when it runs."""
    one = table()
    size = one.size()
    harness.initialize(session)
    for attributes in CONTRADICTIONS:
        with pytest.raises((TypeError, ValueError, _REFUSED)):
            session.run(look_up([one.handle], **attributes).outputs[0])
        assert session.run(size) == 0
    session.run(look_up([one.handle]).outputs[0])
    assert session.run(size) == 1


def test_a_dim_that_is_not_the_tables(session):
    one = table()
    one.dim = 5
    rows = group.lookup_group([group.DenseLookup(one, tf.constant([1], tf.int64))])[0]
    harness.initialize(session)
    one.dim = DIM
    with pytest.raises(_REFUSED, match=f"{NAME}.*{DIM}.*5"):
        session.run(rows)


def _given(*rows):
    return {"given": [np.asarray(values, np.float32) for values in rows], "initializer": "given"}


# What a table is initialized with, and the error.
BAD_TABLES = [
    *(
        ({"placement": placement}, f"'{NAME}'.*{placement}")
        for placement in ("by_keys", "one_rank:1", "one_rank:-1", "ranges:0", "ranges:0,1,2", "ranges:1,2")
    ),
    ({"placement": ""}, f"'{NAME}'.*, not \"\""),
    ({"placement": "\x00"}, rf"'{NAME}'.*\\x00"),
    # No memory holds a row.
    *(({"dim": dim}, f"{NAME}.*{dim}") for dim in (2**28 + 1, 2**40, 2**62, 2**63 - 1)),
    *(
        ({"initializer": initializer, "initializer_args": arguments}, initializer)
        for initializer, arguments in (
            ("constant", []),
            ("constant", [1.0, 2.0]),
            ("uniform", [1.0]),
            ("normal", []),
        )
    ),
    (_given(), f"'{NAME}'.*0 tensors of initial rows, not 1"),
    (_given(np.zeros([3, DIM]), np.zeros([3, DIM])), f"'{NAME}'.*2 tensors of initial rows, not 1"),
    ({**_given(np.zeros([3, DIM])), "initializer": "uniform"}, f"'{NAME}'.*1 tensors of initial rows, not 0"),
    (_given(np.zeros([DIM])), rf"'{NAME}'.*shape \[.*\], not \[rows, "),
    (_given(np.zeros([3, DIM + 1])), rf"'{NAME}'.*shape \[3,.*\], not \[rows, "),
    (_given(np.zeros([0, DIM])), rf"'{NAME}'.*shape \[0,.*\], not \[rows, "),
    (_given(np.full([3, DIM], np.inf)), f"'{NAME}'.*row 0, column 0 is inf"),
]


def test_tables_that_cannot_be(session):
    handle = native.ops.sok_table(shared_name=NAME)
    for attributes, message in BAD_TABLES:
        attributes = {"given": [], "dim": DIM, **attributes}
        op = native.ops.sok_initialize_table(handle, attributes.pop("given"), **attributes)
        with pytest.raises(_REFUSED, match=message):
            session.run(op)


# ---- The plan that a lookup passes to its gradient op. ----


def gradient_op(handle, plan, gradients, dim=DIM, num_weights=None):
    return native.ops.sok_group_lookup_grad(
        handles=[handle],
        plan=plan,
        gradients=gradients,
        num_weights=len(gradients) if num_weights is None else num_weights,
        dims=[dim],
        weighted=[True] * len(gradients),
    )


def weighted_plan(one, ids=(1, 2)):
    return look_up([one.handle], ids, [1.0] * len(ids), dims=[one.dim]).plan


def _read(one):
    return one.sparse_read(tf.constant([1, 2], tf.int64)).op.outputs[-1]


def _no_plan():
    return tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=3, element_dtype=tf.int64)


# Of a sound table: the plan; gradients of the output, which is one bag; and the error.
PLANS = {
    "gradients of two bags": (weighted_plan, lambda: [tf.ones([2, DIM])], {}, "do not fit"),
    "wider gradients": (weighted_plan, lambda: [tf.ones([1, DIM + 1])], {}, "do not fit"),
    "gradients of no bags": (weighted_plan, lambda: [tf.ones([0, DIM])], {}, "do not fit"),
    "a number": (weighted_plan, lambda: [tf.ones([])], {}, "do not fit"),
    "gradients of two outputs": (weighted_plan, lambda: [tf.ones([1, DIM])] * 2, {}, "do not fit"),
    "no number of weights": (weighted_plan, lambda: [tf.ones([1, DIM])], {"num_weights": 0}, "weight"),
    "a list": (lambda one: _no_plan(), lambda: [tf.ones([1, DIM])], {}, "plan"),
    "nothing": (lambda one: harness.empty_tensor(tf.variant), lambda: [tf.ones([1, DIM])], {}, "plan"),
    "the plan of a lookup without weights": (_read, lambda: [tf.ones([2, DIM])], {}, "do not fit"),
    # It has row numbers that the table does not have.
    "the plan of a larger table": (
        lambda one: weighted_plan(table(name="large_table"), list(range(5000))),
        lambda: [tf.ones([1, DIM])],
        {},
        NAME,
    ),
}


@pytest.mark.parametrize("case", PLANS)
def test_plans_and_gradients_that_do_not_fit(session, case):
    plan, gradients, more, message = PLANS[case]
    one = table()
    result = gradient_op(one.handle, plan(one), gradients(), **more)
    harness.initialize(session)
    with pytest.raises(_REFUSED, match=message):
        session.run([result.values, result.weight_gradients])


def test_the_plan_of_a_lookup_in_a_wider_table(session):
    wide = table(dim=1024)
    narrow = gradient_op(wide.handle, weighted_plan(wide), [tf.ones([1, DIM])])
    harness.initialize(session)
    with pytest.raises(_REFUSED, match=f"{NAME}.*1024.*{DIM}"):
        session.run([narrow.values, narrow.weight_gradients])


def test_kept_words_of_something_else(session):
    kept = native.ops.sok_kept_words(weighted_plan(table()))
    harness.initialize(session)
    with pytest.raises(_REFUSED, match="no output of SokKeepWords"):
        session.run(kept)


def test_a_gradient_after_the_table_was_made_anew(session):
    """The rows that the lookup read are gone. In any order of ops, nothing is read beyond the table."""
    one, weights = table(), tf.ones([3000])
    bag = tf.RaggedTensor.from_row_splits(tf.range(3000, dtype=tf.int64), np.int64([0, 3000]))
    output = group.lookup_group([group.RaggedLookup(one, bag, "sum", weights)])[0]
    with tf.control_dependencies([output]):
        anew = native.ops.sok_initialize_table(one.handle, [], dim=DIM)
    with tf.control_dependencies([anew]):
        late = tf.identity(tf.ones([1, DIM]))
    gradients = tf.gradients(output, [one, weights], grad_ys=late)
    step = tf.compat.v1.train.GradientDescentOptimizer(1.0).apply_gradients([(gradients[0], one)])
    harness.initialize(session)
    for late_op in (gradients[1], step):
        with pytest.raises(_REFUSED, match=NAME):
            session.run(late_op)
    assert session.run(one.size()) == 0


DIM_SHARDED = 3


@pytest.fixture
def as_if_sharded(monkeypatch):
    """Lookups are built as for several ranks; they run on one rank."""
    monkeypatch.setattr(group, "communicator", lambda: types.SimpleNamespace(size=2))


def _exchange_of(layer: sok.DistributedEmbedding) -> bytes:
    """The `exchange` attribute of the ops of the layer's lookup."""
    layer(tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [2, 1]))
    (route,) = [op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == "SokGroupRoute"]
    (exchange,) = route.get_attr("exchange")
    return exchange


@pytest.mark.parametrize(
    ("ranks", "max_nnz", "argument", "exchange"),
    [
        (2, 15, None, b"rows"),
        (2, 16, None, b"sums"),
        (3, 16, None, b"rows"),
        (3, 24, None, b"sums"),
        (2, 1, "sums", b"sums"),
        (2, 1000, "rows", b"rows"),
    ],
)
def test_long_bags_are_exchanged_as_sums(ranks, max_nnz, argument, exchange, as_if_sharded, monkeypatch):
    monkeypatch.setattr(distributed_embedding, "communicator", lambda: types.SimpleNamespace(size=ranks))
    with tf.Graph().as_default():
        layer = sok.DistributedEmbedding("sum", 10, DIM_SHARDED, 1, max_nnz, exchange=argument)
        assert _exchange_of(layer) == exchange


@pytest.mark.parametrize("exchange", ["row", "", 3, b"rows"])
def test_another_way_of_exchange_is_refused(exchange):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=f"'rows' or 'sums', not {exchange!r}"):
        sok.DistributedEmbedding("sum", 10, DIM_SHARDED, 1, 1, exchange=exchange)


def test_a_bad_batch_is_an_error_that_names_the_variable_and_leaves_the_table(session, as_if_sharded):
    table = sok.EmbeddingVariable("users", DIM_SHARDED)
    row = tf.compat.v1.placeholder(tf.int64, [])
    bags = tf.SparseTensor([[0, 0], [row, 0]], tf.constant([1, 2], tf.int64), [2, 1])
    (output,) = group.lookup_group([group.SparseLookup(table, bags, "sum")])
    harness.initialize(session)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'users': index 1 .* row 7 of 2"):
        session.run(output, {row: 7})
    assert session.run(table.size()) == 0
    assert session.run(output, {row: 1}).shape == (2, DIM_SHARDED)


def test_gradients_are_exchanged_only_after_the_lookup_has_succeeded(as_if_sharded):
    # Gradients of sums do not depend on what the lookup returns.
    with tf.Graph().as_default() as graph:
        tables = [sok.EmbeddingVariable(name, DIM_SHARDED) for name in ("users", "items")]
        ids = tf.constant([1, 2, 1], tf.int64)
        outputs = group.lookup_group([group.DenseLookup(table, ids) for table in tables])
        tf.gradients([tf.reduce_sum(output) for output in outputs], tables)
        (combine,) = [op for op in graph.get_operations() if op.type == graph_ops.GROUP_COMBINE]
        (reduce,) = [op for op in graph.get_operations() if op.type == graph_ops.GROUP_REDUCE]
        assert combine in reduce.control_inputs
