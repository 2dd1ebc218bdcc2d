"""Errors of LookupPrefetch are raised in the step that they belong to, and batches are never mixed."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import control_flow_util, lookup_ops

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import native

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

v1 = tf.compat.v1


def _numbers(count):
    dataset = tf.data.Dataset.range(count)
    return v1.data.make_initializable_iterator(dataset)


def _start(session, iterator, prefetch):
    harness.initialize(session)
    session.run(iterator.initializer)
    session.run(prefetch.prime)


class Model:
    """A model on batches of one number, 0, 1, ...; `ids` makes the ids of a number."""

    def __init__(self, iterator=None, ids=lambda number: number, capacity=None, **arguments):
        self.iterator = _numbers(5) if iterator is None else iterator
        self.table = sok.EmbeddingVariable("table", 2, capacity=capacity)

        def look_up(number):
            return tf.nn.embedding_lookup(self.table, ids(number)), number

        self.prefetch = sok.LookupPrefetch(self.iterator, look_up, **arguments)
        self.rows, self.number = self.prefetch.outputs
        loss = tf.reduce_sum(self.rows)
        self.update = v1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[self.table])

    def start(self, session, prime=True):
        harness.initialize(session)
        session.run([self.iterator.initializer, v1.tables_initializer()])
        if prime:
            session.run(self.prefetch.prime)

    def step(self, session):
        return session.run([self.number, self.update, self.prefetch.advance])[0]


def test_a_step_without_a_first_batch(session):
    model = Model(name="reader")
    model.start(session, prime=False)
    with pytest.raises(tf.errors.FailedPreconditionError, match="reader holds no batch: run `prime`"):
        model.step(session)
    assert session.run(model.table.size()) == 0
    session.run(model.prefetch.prime)
    # The failed step took batch 0.
    assert model.step(session) == 1


def test_a_step_after_one_that_did_not_advance(session):
    model = Model()
    model.start(session)
    session.run(model.update)
    with pytest.raises(tf.errors.FailedPreconditionError, match="`advance` with every step"):
        model.step(session)


def test_a_second_first_batch(session):
    model = Model()
    model.start(session)
    with pytest.raises(tf.errors.FailedPreconditionError, match="LookupPrefetch holds a batch already"):
        session.run(model.prefetch.prime)
    assert model.step(session) == 0


def test_the_end_of_the_data_stays_the_end_and_the_iterator_can_begin_again(session):
    model = Model(_numbers(2))
    for _ in range(2):
        model.start(session)
        assert [model.step(session) for _ in range(2)] == [0, 1]
        for _ in range(2):
            with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
                model.step(session)


def test_bad_ids_are_an_error_of_their_own_step(session):
    def bags(number):
        ends = tf.where(tf.equal(number, 2), [3, 2], [1, 2])
        return tf.concat([[0], tf.cast(ends, tf.int64)], 0)

    table = sok.EmbeddingVariable("table", 2)

    def look_up(number):
        ids = tf.RaggedTensor.from_row_splits(tf.stack([number, 7]), bags(number), validate=False)
        return sok.group_embedding_lookup_sparse([table], [ids], ["sum"])[0], number

    iterator = _numbers(5)
    prefetch = sok.LookupPrefetch(iterator, look_up)
    plain = look_up(tf.constant(2, tf.int64))[0]
    _start(session, iterator, prefetch)
    assert [session.run([prefetch.outputs[1], prefetch.outputs[0], prefetch.advance])[0] for _ in "ab"] == [
        0,
        1,
    ]
    with pytest.raises(tf.errors.InvalidArgumentError) as ahead:
        session.run([prefetch.outputs, prefetch.advance])
    with pytest.raises(tf.errors.InvalidArgumentError) as without:
        session.run(plain)
    message = without.value.message.splitlines()
    said = next(line for line in message if "'table'" in line)
    assert said in ahead.value.message
    assert session.run(table.size()) == 3  # 0, 1 and 7


def test_an_error_of_the_iterator_loses_no_other_batch(session):
    def element(number):
        inverse = tf.debugging.check_numerics(1 / (tf.cast(number, tf.float32) - 2), "two")
        return number + 0 * tf.cast(inverse, tf.int64)

    model = Model(v1.data.make_initializable_iterator(tf.data.Dataset.range(5).map(element)))
    model.start(session)
    assert model.step(session) == 0
    with pytest.raises(tf.errors.InvalidArgumentError, match="two"):
        model.step(session)
    assert [model.step(session) for _ in range(3)] == [1, 3, 4]


def test_a_lookup_beyond_the_capacity_leaves_the_table_as_it_was(session):
    model = Model(capacity=2)
    model.start(session)
    for _ in range(2):
        model.step(session)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="'table' is full: it holds 2 of at most 2"):
        model.step(session)
    assert session.run(model.table.size()) == 2


def test_ids_that_steps_change_are_refused(session):
    offset = v1.get_variable("offset", initializer=tf.constant(1, tf.int64))
    with pytest.raises(ValueError, match=r"\['table'\] depend on .*known only when the step runs"):
        Model(ids=lambda number: number + offset)


def test_training_that_is_fed_is_refused(session):
    table = sok.EmbeddingVariable("table", 2)
    training = v1.placeholder(tf.bool, [])

    def look_up(number):
        ids = tf.RaggedTensor.from_row_splits([number], [0, 1])
        return sok.group_embedding_lookup_sparse([table], [ids], ["sum"], training=training)

    with pytest.raises(ValueError, match="`training` of a lookup.*depend on 'Placeholder:0'"):
        sok.LookupPrefetch(_numbers(3), look_up)


def test_ids_that_come_from_rows_are_refused(session):
    first = sok.EmbeddingVariable("first", 1)

    def ids(number):
        return tf.cast(tf.nn.embedding_lookup(first, number), tf.int64)

    with pytest.raises(ValueError, match=r"\['table'\] depend on"):
        Model(ids=ids)


@pytest.mark.parametrize("iterator", [None, 3, [1, 2]])
def test_an_iterator_of_the_wrong_type(iterator):
    with harness.graph_and_session(), pytest.raises(TypeError, match="must be a tf.compat.v1.data.Iterator"):
        sok.LookupPrefetch(iterator, lambda batch: batch)


def test_a_function_that_returns_nothing_of_the_batch():
    with harness.graph_and_session(), pytest.raises(TypeError, match="does not depend on the batch"):
        sok.LookupPrefetch(_numbers(3), lambda number: tf.constant(1))


def test_functions_and_eager_execution_are_refused():
    with context.eager_mode(), pytest.raises(RuntimeError, match="graphs with sessions"):
        sok.LookupPrefetch(iter(tf.data.Dataset.range(3)), lambda number: number)
    with harness.graph_and_session():
        iterator = _numbers(3)

        @tf.function
        def build():
            return sok.LookupPrefetch(iterator, lambda number: number).outputs

        with pytest.raises(RuntimeError, match="graphs with sessions"):
            build()


def test_state_is_read_in_the_step_and_what_waits_for_it_runs_there(session):
    counter = v1.get_variable("counter", initializer=tf.constant(0, tf.int64))
    fed = v1.placeholder(tf.int64, [])
    found = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(5, dtype=tf.int64), 10 * tf.range(5, dtype=tf.int64)),
        -1,
    )
    table = sok.EmbeddingVariable("table", 2)

    def look_up(number):
        with tf.control_dependencies([tf.debugging.assert_less(number, tf.constant(9, tf.int64))]):
            checked = tf.identity(number)
        rows = tf.nn.embedding_lookup(table, found.lookup(checked))
        with tf.control_dependencies([rows]):
            after = tf.identity(number)
        with tf.control_dependencies([checked]):
            counted = counter + number
        return rows, counted, number * fed, found.lookup(number), after, number

    iterator = _numbers(4)
    prefetch = sok.LookupPrefetch(iterator, look_up)
    with tf.control_dependencies([prefetch.outputs[1]]):
        count = counter.assign_add(100)
    session.run([v1.global_variables_initializer(), v1.tables_initializer(), iterator.initializer])
    session.run(prefetch.prime)
    for step in range(4):
        fetches = [*prefetch.outputs[1:], count, prefetch.advance]
        values = session.run(fetches, {fed: step + 1})[:5]
        assert values == [100 * step + step, step * (step + 1), 10 * step, step, step]


@pytest.mark.parametrize("bad", [0, 1])
def test_a_check_ends_the_data_though_only_the_read_of_a_variable_waits_for_it(session, bad):
    counter = v1.get_variable("counter", initializer=tf.constant(7, tf.int64))

    def look_up(number):
        check = tf.debugging.assert_none_equal(number, tf.constant(bad, tf.int64), message="bad number")
        with tf.control_dependencies([check]):
            return counter.read_value(), number

    iterator = _numbers(3)
    prefetch = sok.LookupPrefetch(iterator, look_up)
    session.run([v1.global_variables_initializer(), iterator.initializer])
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad number"):
        session.run(prefetch.prime)
        for _ in range(2):
            assert session.run([*prefetch.outputs, prefetch.advance])[:2] == [7, 0]


def test_a_table_that_steps_fill_is_read_in_the_step(session):
    seen = lookup_ops.MutableHashTable(tf.int64, tf.int64, -1)
    iterator = _numbers(4)
    prefetch = sok.LookupPrefetch(iterator, lambda number: (seen.lookup(number), number))
    before, number = prefetch.outputs
    with tf.control_dependencies([before]):
        insert = seen.insert(number + 1, 10 * number)
    _start(session, iterator, prefetch)
    steps = [session.run([before, insert, prefetch.advance])[0] for _ in range(4)]
    assert steps == [-1, 0, 10, 20]


def _control_flow(functions):
    """Loops and branches are functions, or TensorFlow's older ops."""
    return mock.patch.object(control_flow_util, "ENABLE_CONTROL_FLOW_V2", functions)


def _products(number):
    return tf.map_fn(lambda i: number * i, tf.range(3, dtype=tf.int64))


def _sums(number):
    def add(i, total):
        return i + 1, total + number

    return tf.while_loop(lambda i, total: i < 3, add, [0, tf.zeros([], tf.int64)])[1]


def _counts(number):
    return tf.while_loop(lambda i: i < number, lambda i: i + 1, [tf.zeros([], tf.int64)])


def _nested(number):
    return tf.map_fn(lambda i: i + _sums(number), tf.range(2, dtype=tf.int64))


def _in_functions(number):
    return tf.function(lambda x: tf.function(_products)(x))(number)


def _in_a_branch(number):
    chosen = tf.size(tf.range(3)) > 2
    return tf.cond(chosen, lambda: _products(number), lambda: tf.zeros([3], tf.int64))


def _vocabulary(number):
    keys = tf.range(5, dtype=tf.int64)
    found = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, 10 * keys), -1)

    def looked_up(first):
        return tf.map_fn(lambda i: found.lookup(first + i), tf.range(2, dtype=tf.int64))

    chosen = tf.cond(number > 2, lambda: found.lookup(number), lambda: number)
    return tf.concat([looked_up(number), tf.function(looked_up)(number), [chosen]], 0)


# For each way to make ids of a number in a loop, the ids.
LOOPS = {
    "map_fn": (_products, lambda number: [0, number, 2 * number]),
    "sums": (_sums, lambda number: 3 * number),
    "iterations": (_counts, lambda number: number),
    "nested": (_nested, lambda number: [3 * number, 3 * number + 1]),
    "functions": (_in_functions, lambda number: [0, number, 2 * number]),
    "branch": (_in_a_branch, lambda number: [0, number, 2 * number]),
    "vocabulary": (
        _vocabulary,
        lambda n: [10 * n, 10 * n + 10 if n < 4 else -1, 10 * n if n > 2 else n],
    ),
}


@pytest.mark.parametrize("functions", [True, False])
@pytest.mark.parametrize("loop", LOOPS)
def test_loops_over_the_batch_run_ahead(loop, functions):
    ids, expected = LOOPS[loop]
    with _control_flow(functions), harness.graph_and_session() as session:
        model = Model(ids=ids)
        model.start(session)
        seen: set[int] = set()
        for number in range(5):
            assert model.step(session) == number
            seen.update(np.ravel(expected(number)).tolist())
            assert sorted(harness.table_contents(session, model.table)[0]) == sorted(seen)
        with pytest.raises(tf.errors.OutOfRangeError):
            model.step(session)
        model.start(session)
        assert model.step(session) == 0


@pytest.mark.parametrize("functions", [True, False])
def test_loops_over_the_batch_give_labels_of_their_own_batch(functions):
    with _control_flow(functions), harness.graph_and_session() as session:
        iterator = _numbers(4)
        table = sok.EmbeddingVariable("table", 2)

        def look_up(number):
            return tf.nn.embedding_lookup(table, number), _products(number), _counts(number), number

        prefetch = sok.LookupPrefetch(iterator, look_up)
        types = {op.type for op in session.graph.get_operations()}
        assert ("NextIteration" in types) != functions
        _start(session, iterator, prefetch)
        for number in range(4):
            _, products, count, taken = session.run([prefetch.outputs, prefetch.advance])[0]
            assert products.tolist() == [0, number, 2 * number]
            assert np.ravel(count).tolist() == [number]
            assert taken == number


def _in_a_branch_that_reads(number, step):
    return tf.cond(number > 0, lambda: number * step, lambda: step)


def test_branches_that_read_state_are_part_of_the_step(session):
    scale = v1.get_variable("scale", initializer=tf.constant(2, tf.int64))
    table = sok.EmbeddingVariable("table", 2)

    def look_up(number):
        return tf.nn.embedding_lookup(table, number), _in_a_branch_that_reads(number, scale)

    iterator = _numbers(3)
    prefetch = sok.LookupPrefetch(iterator, look_up)
    _start(session, iterator, prefetch)
    assert [session.run([prefetch.outputs[1], prefetch.advance])[0] for _ in range(3)] == [2, 2, 4]


def _adds_variable(number, step):
    return tf.map_fn(lambda i: number * i + step, tf.range(3, dtype=tf.int64))


def _until_variable(number, step):
    # Only the number of iterations depends on the step.
    return tf.while_loop(
        lambda i, total: i < step, lambda i, total: (i + 1, total + number), [step * 0, step * 0]
    )[1]


def _lookups_in_loop(number, step):
    table = sok.EmbeddingVariable("other", 2)
    return tf.map_fn(lambda i: tf.nn.embedding_lookup(table, number + i), step + [1], dtype=tf.float32)


@pytest.mark.parametrize("loop", [_adds_variable, _until_variable, _lookups_in_loop, _in_a_branch_that_reads])
def test_loops_and_branches_that_are_no_functions_and_read_state_are_refused(loop):
    with _control_flow(False), harness.graph_and_session():
        step = v1.get_variable("step", initializer=tf.constant(1, tf.int64))
        with pytest.raises(ValueError, match="loop or a branch that uses"):
            sok.LookupPrefetch(_numbers(3), lambda number: (loop(number, step), number))


def test_loops_over_rows_that_are_no_functions_are_part_of_the_step():
    with _control_flow(False), harness.graph_and_session() as session:
        iterator = _numbers(3)
        table = sok.EmbeddingVariable("table", 2, initializer=tf.keras.initializers.Ones())

        def look_up(number):
            rows = tf.nn.embedding_lookup(table, tf.stack([number, 7]))
            return tf.map_fn(lambda row: 2 * row, rows), number

        prefetch = sok.LookupPrefetch(iterator, look_up)
        _start(session, iterator, prefetch)
        for number in range(3):
            (rows, taken), _ = session.run([prefetch.outputs, prefetch.advance])
            np.testing.assert_array_equal(rows, np.full([2, 2], 2))
            assert taken == number
            assert len(harness.table_contents(session, table)[0]) == 2 + number


def _ahead(table, ids):
    return native.ops.sok_group_lookup_ahead(
        handles=[table.handle],
        ids=[ids],
        bags=[],
        dense_shapes=[],
        weights=[],
        training=True,
        num_outputs=1,
        dims=[table.dim],
        table_of=[0],
        layouts=["dense"],
        combiners=["none"],
        weighted=[False],
        slots=[0],
    )


def _read(table, ahead, num_outputs=1, num_lookups=1):
    return native.ops.sok_group_lookup_read(
        [table.handle], ahead, num_outputs=num_outputs, num_lookups=num_lookups, dims=[table.dim]
    )


def test_what_was_merged_is_read_once_and_in_its_own_tables(session):
    one, other = (sok.EmbeddingVariable(name, 2) for name in ("one", "other"))
    ids = tf.constant([1, 1, 2], tf.int64)
    harness.initialize(session)
    assert session.run(_read(one, _ahead(one, ids)).outputs)[0].shape == (3, 2)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="'other': the ids were merged ahead for .*'one'"
    ):
        session.run(_read(other, _ahead(one, ids)).outputs)
    ahead = _ahead(one, ids)
    with pytest.raises(tf.errors.FailedPreconditionError, match="'one': the ids .* looked up already"):
        session.run([_read(one, ahead).outputs, _read(one, ahead).outputs])
    with pytest.raises(tf.errors.InvalidArgumentError, match="3 lookups in 1 tables"):
        session.run(_read(one, ahead, num_lookups=3).outputs)
    plan = _read(one, ahead).plan
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not the output of a SokGroupLookupAhead"):
        session.run(_read(one, plan).outputs)
    assert session.run(other.size()) == 0


def test_held_tensors_are_taken_as_what_they_are(session):
    hold = native.ops.sok_hold_batch([tf.constant([1, 2]), tf.constant("a")], name_of_batch="batch")
    take = [
        native.ops.sok_take_batch(has_next, T=dtypes, name_of_batch="batch")
        for has_next, dtypes in (
            (True, [tf.int32, tf.string]),
            (True, [tf.int32]),
            (True, [tf.int32, tf.float32]),
        )
    ]
    session.run(hold)
    numbers, text = session.run(take[0])
    np.testing.assert_array_equal(numbers, [1, 2])
    assert text == b"a"
    for wrong, message in (
        (take[1], "holds 2 tensors, not 1"),
        (take[2], "tensor 1 is string, not float"),
    ):
        session.run(hold)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(wrong)
