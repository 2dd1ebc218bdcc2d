"""Recognizing in graphs which gradients are the unchanged outputs of a group's gradient op. Nothing runs."""

import pytest
import tensorflow as tf

from graph_ops_groups import GROUPS, LAYOUTS, Model, are_same, divided, make_table, only
from same_length import zip_equal
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1

pytest_plugins = ["graph_ops_groups"]
pytestmark = pytest.mark.usefixtures("default_graph")


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
