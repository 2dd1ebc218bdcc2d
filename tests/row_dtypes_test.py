"""Tables that keep rows and slots in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from device_of_tests import sized
from sparse_operation_kit.deeprec.adaptive import constant_initial_value, look_up_with_initial_rows
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1
session = harness.session
LazyAdam = sok.tf.keras.optimizers.LazyAdamOptimizer
NARROW = [tf.bfloat16, tf.float16]
narrow = pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.name)
pytestmark = pytest.mark.cases_on_gpu(2)
KEYS = np.concatenate([np.arange(40, dtype=np.int64), harness.HOSTILE_KEYS[1:2]])


def rounded(values: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """TensorFlow's own rounding to nearest."""
    return np.asarray(values, np.float32).astype(dtype.as_numpy_dtype).astype(np.float32)


def is_of(values: np.ndarray, dtype: tf.DType) -> bool:
    return np.array_equal(rounded(values, dtype), values)


def _bags(rng: np.random.Generator, bags: int = 30) -> tuple[np.ndarray, np.ndarray]:
    splits = np.concatenate([[0], np.cumsum(rng.integers(0, 12, bags))])
    return rng.choice(KEYS, splits[-1]), splits


@narrow
@pytest.mark.parametrize("training", [True, False])
def test_lookups_give_float32_of_the_rounded_rows(dtype, training):
    """All kinds of lookups give the bits of a float32 table that has the rounded rows."""
    outputs = []
    rng = np.random.default_rng(0)
    ids, splits = _bags(rng)
    weights = rng.uniform(0.5, 2.0, len(ids)).astype(np.float32)
    for row_dtype in (dtype, tf.float32):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable(
                "table", 5, dtype=row_dtype, initializer=v1.random_normal_initializer()
            )
            assert (table.row_dtype, table.dtype) == (row_dtype, tf.float32)
            bags, of_bags = (tf.RaggedTensor.from_row_splits(values, splits) for values in (ids, weights))
            lookups = [group.DenseLookup(table, tf.constant(ids))]
            lookups += [group.SparseLookup(table, bags.to_sparse(), how) for how in ("sum", "mean", "sqrtn")]
            lookups.append(group.SparseLookup(table, bags.to_sparse(), "mean", weights=of_bags.to_sparse()))
            found = group.lookup_group(lookups, training=training)
            harness.initialize(session)
            if row_dtype == tf.float32:
                # Half of the keys have rows; the others read as their initial rows, rounded too.
                rows = session.run(tf.nn.embedding_lookup(table, KEYS))
                session.run(table.assign_rows(KEYS, rounded(rows, dtype)))
            else:
                session.run(tf.nn.embedding_lookup(table, KEYS[::2]))
            outputs.append(session.run(found))
    assert all(output.dtype == np.float32 for output in outputs[0])
    harness.assert_equal_arrays(*outputs)


@narrow
def test_a_step_rounds_to_one_of_two_neighbors_and_nearest_to_the_nearest(dtype):
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal([len(KEYS), 3]).astype(np.float32)
    trained = {}
    for rounding in ("stochastic", "nearest"):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable("table", 3, dtype=dtype, rounding=rounding)
            rows = tf.nn.embedding_lookup(table, KEYS)
            step = v1.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_sum(rows * gradients))
            harness.initialize(session)
            before = session.run(rows)
            session.run(step)
            trained[rounding] = session.run(rows)
    exact = before - np.float32(0.01) * gradients
    nearest = rounded(exact, dtype)
    np.testing.assert_array_equal(trained["nearest"], nearest)
    stochastic = trained["stochastic"]
    assert is_of(stochastic, dtype)
    # One of the neighbors: nearer than the distance of two numbers, and on either side.
    distance = np.abs(exact) * (2.0**-7 if dtype == tf.bfloat16 else 2.0**-10) + 2.0**-24
    assert np.all(np.abs(stochastic - exact) < distance)
    assert 0.15 < np.mean(stochastic != nearest) < 0.4


@narrow
def test_small_changes_are_kept_on_average_and_lost_to_nearest(dtype):
    """A thousand steps that each move a row by less than a quarter of the distance to the next number."""
    change, steps = (2.0**-10, 250) if dtype == tf.bfloat16 else (2.0**-13, 1000)
    steps = sized(steps, 50)
    for rounding in ("stochastic", "nearest"):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable("table", 8, dtype=dtype, rounding=rounding, initializer=1.0)
            rows = tf.nn.embedding_lookup(table, KEYS)
            step = v1.train.GradientDescentOptimizer(1.0).minimize(-change * tf.reduce_sum(rows))
            harness.initialize(session)
            for _ in range(steps):
                session.run(step)
            after = session.run(rows)
        if rounding == "nearest":
            assert np.all(after == 1.0)
        else:
            # Each step's error is at most the distance 8 * change, so the mean's deviation is below 0.1.
            np.testing.assert_allclose(after.mean(), 1.0 + steps * change, rtol=0.02)
            assert after.std() > 0


def _trained(
    session: v1.Session, dtype: tf.DType, slot_dtype: tf.DType, how: str
) -> tuple[sok.EmbeddingVariable, tf.Tensor, tf.Operation, tf.Tensor]:
    table = sok.EmbeddingVariable("table", 6, dtype=dtype, slot_dtype=slot_dtype)
    keys = v1.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(table, keys)
    step = LazyAdam(0.05, second_moment=how).minimize(tf.reduce_sum(tf.square(rows - 0.3)), var_list=[table])
    harness.initialize(session)
    return table, keys, step, rows


def _batch(number: int) -> np.ndarray:
    return harness.zipf_keys(np.random.default_rng(number), 60, vocabulary=50)


@pytest.mark.parametrize("how", ["element", "row"])
@pytest.mark.parametrize("slot_dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("dtype", [*NARROW, tf.float32])
def test_training_goes_on_from_a_checkpoint_with_the_same_bits_for_any_threads(
    dtype, slot_dtype, how, tmp_path
):
    contents, prefix = [], str(tmp_path / "model")
    for threads, restarts in ((1, False), (4, True)):
        config = harness.session_config(threads)
        with harness.graph_and_session(threads) as session, v1.Session(config=config) as restored:
            table, keys, step, _ = _trained(session, dtype, slot_dtype, how)
            saver, reader = v1.train.Saver(), harness.TableReader(table)
            for number in range(12):
                if restarts and number == 6:
                    saver.save(session, prefix)
                    session = restored
                    saver.restore(session, prefix)
                session.run(step, {keys: _batch(number)})
            contents.append(reader.read(session)[0])
    (keys, rows), (other_keys, other_rows) = contents
    np.testing.assert_array_equal(rows[np.argsort(keys)], other_rows[np.argsort(other_keys)])
    assert is_of(rows, dtype)
    saved = harness.saved_tables(prefix)["table"]
    assert is_of(saved["slot-m"], slot_dtype)
    assert saved["slot-v"].shape[1] == (1 if how == "row" else 6)
    assert is_of(saved["slot-v"], slot_dtype) or how == "row"


@narrow
def test_a_checkpoint_restores_into_another_type(dtype, tmp_path):
    """Into 16 bits it is rounded to nearest; into float32 it is as it was."""
    prefix, contents = str(tmp_path / "model"), []
    for dtypes in ((tf.float32, tf.float32), (dtype, tf.bfloat16), (tf.float32, tf.float32)):
        with harness.graph_and_session() as session:
            table, keys, step, _ = _trained(session, *dtypes, "element")
            saver = v1.train.Saver()
            if contents:
                saver.restore(session, prefix)
            else:
                session.run(step, {keys: _batch(0)})
            saver.save(session, prefix)
            contents.append(harness.saved_tables(prefix)["table"])
    exact, narrow, back = contents
    for name, of in (("values", dtype), ("slot-m", tf.bfloat16), ("slot-v", tf.bfloat16)):
        np.testing.assert_array_equal(narrow[name], rounded(exact[name], of), err_msg=name)
        np.testing.assert_array_equal(back[name], narrow[name], err_msg=name)


def test_the_value_of_keys_without_permission_is_rounded(session):
    option = sok.InitializerOption(0.3, default_value_no_permission=0.1)
    table = sok.EmbeddingVariable(
        "table", 4, dtype=tf.bfloat16, initializer=option, admission=sok.CounterFilter(2)
    )
    rows = tf.nn.embedding_lookup(table, tf.constant([7], tf.int64))
    harness.initialize(session)
    for value in (0.1, 0.3):  # the second time, the key is admitted
        expected = np.full([1, 4], rounded(value, tf.bfloat16))
        np.testing.assert_array_equal(session.run(rows), expected)


@narrow
def test_new_rows_are_recognized_by_their_constant_as_it_is_kept(dtype, session):
    """0.7 is another number in 16 bits."""
    table = sok.EmbeddingVariable("table", 2, dtype=dtype, initializer=0.7)
    rows = look_up_with_initial_rows(
        table,
        tf.constant([1, 2], tf.int64),
        tf.constant([[0.5] * 2, [0.25] * 2]),
        constant_initial_value(table),
    )
    harness.initialize(session)
    np.testing.assert_array_equal(session.run(rows), [[0.5] * 2, [0.25] * 2])


@pytest.mark.parametrize(("dtype", "left"), [(tf.float32, 1), (tf.bfloat16, 0)])
def test_eviction_goes_by_the_rows_as_they_are_kept(session, dtype, left, tmp_path):
    """0.7 is 0.69921875 in bfloat16, whose norm is below the threshold."""
    table = sok.EmbeddingVariable(
        "table", 4, dtype=dtype, initializer=0.7, eviction=sok.L2WeightEvict(0.5 * 4 * 0.6995**2)
    )
    rows = tf.nn.embedding_lookup(table, tf.constant([7], tf.int64))
    saver, size = v1.train.Saver(), table.size()
    harness.initialize(session)
    session.run(rows)
    saver.save(session, str(tmp_path / "model"))
    assert session.run(size) == left


RECORD = {"slot_dtype": tf.bfloat16, "rounding": "nearest"}


def _column() -> Any:
    option = sok.EmbeddingVariableOption(value_dtype=tf.float16, **RECORD)
    column = sok.categorical_column_with_embedding("key", tf.int64, ev_option=option)
    column = type(column).from_config(column.get_config())  # as a saved model has it
    column = tf.feature_column.embedding_column(column, 4)
    v1.feature_column.input_layer({"key": tf.constant([[1]], tf.int64)}, [column])
    return sok.split_embedding_variable_from_others(v1.trainable_variables())[0][0]


MAKERS = {
    "DistributedEmbedding": lambda: (
        sok.DistributedEmbedding("sum", None, 4, 1, 2, row_dtype=tf.float16, **RECORD).embedding_variable
    ),
    "All2AllDenseEmbedding": lambda: (
        sok.All2AllDenseEmbedding(None, 4, 1, 1, row_dtype=tf.float16, **RECORD).embedding_variable
    ),
    "get_embedding": lambda: (
        sok.get_embedding(
            "a",
            sok.All2AllDenseEmbedding,
            max_vocabulary_size_per_gpu=None,
            embedding_vec_size=4,
            slot_num=1,
            nnz_per_slot=1,
            row_dtype=tf.float16,
            **RECORD,
        ).embedding_variable
    ),
    "get_embedding_variable": lambda: sok.get_embedding_variable(
        "a", 4, ev_option=sok.EmbeddingVariableOption(value_dtype=tf.float16, **RECORD)
    ),
    "value_dtype": lambda: sok.get_embedding_variable(
        "a", 4, value_dtype=tf.float16, ev_option=sok.EmbeddingVariableOption(**RECORD)
    ),
    "column": _column,
    "DynamicVariable": lambda: sok.experiment.DynamicVariable(4, dtype=tf.float16, **RECORD),
    "Variable": lambda: sok.experiment.Variable(np.ones([3, 4]), dtype=tf.float16, **RECORD),
    "localized Variable": lambda: sok.experiment.Variable(
        shape=[3, 4], dtype=tf.float16, mode="localized:0", **RECORD
    ),
}


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_every_way_to_make_a_table_takes_the_types(name, session):
    table = MAKERS[name]()
    assert (table.row_dtype, table.dtype) == (tf.float16, tf.float32)
    # The initializer, and in some graphs what makes the table for a restore.
    made = [op for op in table.graph.get_operations() if op.type == "SokInitializeTable"]
    assert {(op.get_attr("slot_dtype"), op.get_attr("rounding")) for op in made} == {
        (tf.bfloat16, b"nearest")
    }


def test_options_of_columns_that_share_a_table_have_the_same_types(session):
    options = [None, sok.EmbeddingVariableOption(slot_dtype=tf.bfloat16)]
    keys = [
        sok.categorical_column_with_embedding(key, tf.int64, ev_option=option)
        for key, option in zip("ab", options)
    ]
    columns = v1.feature_column.shared_embedding_columns(keys, 2)
    features = {key: tf.constant([[1]], tf.int64) for key in "ab"}
    with pytest.raises(ValueError, match="has other options than column 'a_.*'slot_dtype': tf.bfloat16"):
        v1.feature_column.input_layer(features, columns)


def test_bad_arguments_name_the_variable_and_the_value(session):
    for arguments, message in (
        ({"dtype": tf.float64}, "dtype must be tf.float32, tf.bfloat16 or tf.float16, not tf.float64"),
        ({"slot_dtype": tf.float16}, "slot_dtype tf.float16 would lose squares below 6e-8"),
        ({"slot_dtype": tf.int32}, "slot_dtype must be tf.float32 or tf.bfloat16, not tf.int32"),
        ({"rounding": "up"}, "rounding must be 'stochastic' or 'nearest', not 'up'"),
    ):
        with pytest.raises(ValueError, match=f"'my_table': {message}"):
            sok.EmbeddingVariable("my_table", 3, **arguments)
    table = sok.EmbeddingVariable("my_table", 3, dtype=tf.bfloat16)
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, KEYS))
    step = v1.train.AdamOptimizer(0.1).minimize(loss, var_list=[table])
    harness.initialize(session)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="'my_table': optimizer 'adam' also changes rows"
    ):
        session.run(step)
