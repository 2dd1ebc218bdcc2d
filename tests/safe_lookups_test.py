# Tags: versions
"""DeepRec's fused lookups and those of several dimensions equal TensorFlow's, and a slow reference."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import deeprec

pytestmark = pytest.mark.cases_on_gpu(2)

ROWS = np.arange(1, 41, dtype=np.float32).reshape(10, 4) / 7
COMBINERS = ("sum", "mean", "sqrtn")


@pytest.fixture
def session():
    deeprec.install()
    with harness.graph_and_session() as session:
        yield session


@pytest.fixture(params=["table", "ordinary", "partitioned"])
def params(request, session):
    """A variable with the rows `ROWS`, and what loads them."""
    if request.param == "table":
        table = sok.EmbeddingVariable("table", 4)
        return table, sok.Saver().load_embedding_values(table, ROWS)
    if request.param == "ordinary":
        return tf.compat.v1.get_variable("v", initializer=ROWS), tf.no_op()
    parts = np.split(ROWS, [4, 7])
    return [tf.compat.v1.get_variable(f"v{i}", initializer=part) for i, part in enumerate(parts)], tf.no_op()


def random_ids(rng, shape, count, low=-2):
    """Sparse ids at random places, and weights of both signs."""
    places = np.sort(rng.choice(np.prod(shape), count, replace=False))
    indices = np.stack(np.unravel_index(places, shape), axis=1)
    ids = tf.SparseTensor(indices, tf.constant(rng.integers(low, 10, count), tf.int64), shape)
    values = np.round(rng.normal(size=count), 3).astype(np.float32)
    return ids, tf.SparseTensor(indices, values, shape)


def evaluate(session, load, *fetches):
    harness.initialize(session)
    session.run(load)
    return session.run(list(fetches))


@pytest.mark.parametrize("default_id", [None, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_safe_lookups_are_tensorflows(session, params, combiner, weighted, default_id):
    rng = np.random.default_rng(len(combiner) + weighted)
    ids, weights = random_ids(rng, (5, 2, 4), 17)
    arguments = (ids, weights if weighted else None, combiner, default_id)
    variable, load = params
    ours = deeprec.fused_safe_embedding_lookup_sparse(variable, *arguments)
    theirs = tf.compat.v1.nn.safe_embedding_lookup_sparse(tf.constant(ROWS), *arguments)
    assert ours.shape.as_list() == [5, 2, 4]
    np.testing.assert_allclose(*evaluate(session, load, ours, theirs), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("max_norm", [0.5, 3.0])
def test_rows_are_clipped_before_they_are_combined(session, params, max_norm):
    ids, weights = random_ids(np.random.default_rng(1), (6, 4), 12)
    variable, load = params
    arguments = {"combiner": "mean", "max_norm": max_norm}
    ours = deeprec.fused_safe_embedding_lookup_sparse(variable, ids, weights, **arguments)
    theirs = tf.compat.v1.nn.safe_embedding_lookup_sparse(tf.constant(ROWS), ids, weights, **arguments)
    np.testing.assert_allclose(*evaluate(session, load, ours, theirs), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("combiner", [None, *COMBINERS])
def test_unsafe_lookups_are_tensorflows(session, params, combiner):
    ids, weights = random_ids(np.random.default_rng(2), (6, 5), 15, low=0)
    variable, load = params
    ours = deeprec.fused_embedding_lookup_sparse(variable, ids, weights, combiner=combiner)
    theirs = tf.compat.v1.nn.embedding_lookup_sparse(
        tf.constant(ROWS), ids, weights, combiner=combiner or "mean"
    )
    got, wanted = evaluate(session, load, ours, theirs)
    has_ids = np.isin(np.arange(6), session.run(ids).indices[:, 0])
    np.testing.assert_allclose(
        got[: len(wanted)][has_ids[: len(wanted)]], wanted[has_ids[: len(wanted)]], rtol=1e-5
    )
    assert not got[~has_ids].any()


def test_negative_ids_are_keys_unless_they_are_pruned(session):
    table = sok.EmbeddingVariable("table", 2, initializer="ones")
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([-5, 3, -5], tf.int64), [2, 2])
    kept = deeprec.fused_embedding_lookup_sparse(table, ids, combiner="sum")
    pruned = deeprec.fused_embedding_lookup_sparse(table, ids, combiner="sum", prune_invalid_ids=True)
    default = deeprec.fused_embedding_lookup_sparse(
        table, ids, combiner="sum", prune_invalid_ids=True, default_id=7
    )
    unfilled = deeprec.fused_embedding_lookup_sparse(
        table, ids, combiner="sum", prune_invalid_ids=True, default_id=7, fill_empty_row=False
    )
    harness.initialize(session)
    assert session.run(pruned)[:, 0].tolist() == [1, 0]
    assert session.run(table.size()) == 1
    assert session.run(kept)[:, 0].tolist() == [2, 1]
    assert session.run(default)[:, 0].tolist() == [1, 1]
    assert session.run(unfilled)[:, 0].tolist() == [1, 0]
    assert sorted(harness.table_contents(session, table)[0]) == [-5, 3, 7]


def test_a_lookup_is_one_op_and_trains(session):
    table = sok.EmbeddingVariable("table", 2, initializer="zeros")
    ids = tf.SparseTensor([[0, 0], [2, 0], [2, 1]], tf.constant([4, 4, 5], tf.int64), [3, 2])
    rows = deeprec.fused_safe_embedding_lookup_sparse(table, ids)
    assert [op.type for op in session.graph.get_operations()].count("SokGroupLookup") == 1
    step = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
    harness.initialize(session)
    session.run(step)
    keys, values = harness.table_contents(session, table)
    assert dict(zip(keys.tolist(), values[:, 0].tolist())) == {4: -1.5, 5: -0.5}


@pytest.mark.parametrize("max_norm", [None, 2.0])
@pytest.mark.parametrize("dtype", [None, tf.float32, tf.float64])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("name", ["embedding_lookup_sparse", "safe_embedding_lookup_sparse"])
def test_functions_of_tensorflow_look_a_table_up_in_one_op(session, name, combiner, dtype, max_norm):
    rng = np.random.default_rng(len(combiner))
    is_safe = name.startswith("safe")
    ids, weights = random_ids(rng, (6, 5), 20, low=-2 if is_safe else 0)
    if not is_safe:
        weights = tf.SparseTensor(weights.indices, tf.abs(weights.values) + 0.5, weights.dense_shape)
    of_theirs = None if dtype is None else weights
    weights = None if dtype is None else tf.cast(weights, dtype)
    table = sok.EmbeddingVariable("table", 4)
    before = len(session.graph.get_operations())
    options = {"combiner": combiner, "max_norm": max_norm}
    ours = getattr(tf.compat.v1.nn, name)([table], ids, weights, **options)
    of_v2 = getattr(tf.nn, name)(table, ids, weights, **options)
    made = [op.type for op in session.graph.get_operations()[before:]]
    assert made.count("SokGroupLookup") == 2 and "Unique" not in made
    theirs = getattr(tf.compat.v1.nn, name)(tf.constant(ROWS), ids, of_theirs, **options)
    load = sok.Saver().load_embedding_values(table, ROWS)
    got, also, wanted = evaluate(session, load, ours, of_v2, theirs)
    np.testing.assert_array_equal(got, also)
    np.testing.assert_allclose(got[: len(wanted)], wanted, rtol=1e-5, atol=1e-6)
    assert not got[len(wanted) :].any()


@pytest.mark.parametrize("name", ["embedding_lookup_sparse", "safe_embedding_lookup_sparse"])
def test_functions_of_tensorflow_take_more_dimensions(session, name):
    ids, weights = random_ids(np.random.default_rng(4), (5, 2, 4), 25, low=0)
    weights = tf.SparseTensor(weights.indices, tf.abs(weights.values) + 0.5, weights.dense_shape)
    table = sok.EmbeddingVariable("table", 4)
    ours, theirs = (
        getattr(tf.compat.v1.nn, name)(params, ids, weights, combiner="mean")
        for params in (table, tf.constant(ROWS))
    )
    load = sok.Saver().load_embedding_values(table, ROWS)
    np.testing.assert_allclose(*evaluate(session, load, ours, theirs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["embedding_lookup_sparse", "safe_embedding_lookup_sparse"])
def test_filters_count_all_occurrences_of_functions_of_tensorflow(session, name):
    """As in DeepRec. TensorFlow's own functions would look each distinct id up once."""
    table = sok.EmbeddingVariable("table", 2, initializer="ones", admission=sok.CounterFilter(3))
    keys = tf.constant([1, 1, 1, 2, 2, 3], tf.int64)
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [3, 0]], keys, [4, 2])
    rows = getattr(tf.compat.v1.nn, name)(table, ids, None, combiner="sum")
    again = getattr(tf.compat.v1.nn, name)(table, ids, None, combiner="sum", name="again")
    frequency = table.get_frequency(tf.constant([1, 2, 3, 4], tf.int64))
    harness.initialize(session)
    assert session.run(rows)[:, 0].tolist() == [2, 1, 0, 0]
    assert session.run(frequency).tolist() == [3, 2, 1, 0]
    assert session.run(again)[:, 0].tolist() == [2, 2, 1, 0]
    assert again.op.name.startswith("again")


def slow_combination(rows, weights, combiner, divide):
    """Combines a list of rows that were multiplied with their weights."""
    rows = np.array(rows)
    if combiner in ("max", "min"):
        return getattr(np, combiner)(rows, axis=0)
    weights = np.array(weights) if divide else np.ones(len(rows))
    divisor = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[combiner]
    return rows.sum(axis=0) / divisor if divisor else np.zeros_like(rows[0])


def slow_reference(elements, shape, combiners, axis):
    """`elements` maps places to (row, weight); returns the same for places without the last dimensions."""
    for dimension in range(len(shape) - 1, len(shape) - 1 - len(combiners), -1):
        combiner = combiners[dimension - len(shape)]
        grouped = {}
        for place, element in elements.items():
            grouped.setdefault(place[:dimension], {})[place[dimension]] = element
        elements = {}
        for place, members in grouped.items():
            rows, weights = zip(*members.values())
            if combiner == "tile":
                row = np.concatenate(
                    [members.get(i, (np.zeros_like(rows[0]), 0))[0] for i in range(shape[dimension])]
                )
            else:
                row = slow_combination(rows, weights, combiner, dimension == axis)
            elements[place] = row, np.mean(weights)
    return elements


@pytest.mark.parametrize("seed", range(12))
def test_lookups_of_several_dimensions(session, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(1, 5, rng.integers(2, 5)))
    ids, weights = random_ids(rng, shape, int(rng.integers(0, np.prod(shape) + 1)), low=0)
    combiners = [str(name) for name in rng.choice([*COMBINERS, "max", "min", "tile"], len(shape) - 1)]
    weighted, axis = bool(rng.integers(2)), int(rng.integers(1, len(shape)))
    table = sok.EmbeddingVariable("table", 4)
    ours = deeprec.embedding_lookup_sparse_multi_dim(
        table, ids, weights if weighted else None, combiners=combiners, weight_axis=axis
    )
    load = sok.Saver().load_embedding_values(table, ROWS)
    got, places, values, numbers = evaluate(session, load, ours, ids.indices, ids.values, weights.values)
    numbers = numbers if weighted else np.ones_like(numbers)
    elements = {
        tuple(place): (ROWS[value] * number, number) for place, value, number in zip(places, values, numbers)
    }
    wanted = np.zeros_like(got)
    for (row,), (value, _) in slow_reference(elements, shape, combiners, axis if weighted else -1).items():
        wanted[row] = value
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_leading_dimensions_without_a_combiner_stay(session, params, combiner):
    ids, _ = random_ids(np.random.default_rng(5), (3, 4, 2), 11)
    variable, load = params
    ours = deeprec.safe_embedding_lookup_multi_dim(variable, ids, combiners=combiner)
    theirs = tf.compat.v1.nn.safe_embedding_lookup_sparse(tf.constant(ROWS), ids, combiner=combiner)
    assert ours.shape.as_list() == [3, 4, 4]
    np.testing.assert_allclose(*evaluate(session, load, ours, theirs), rtol=1e-6)


def test_dimensions_are_tiled_and_pruned(session):
    table = sok.EmbeddingVariable("table", 1, initializer="ones")
    ids = tf.SparseTensor([[0, 1, 0], [0, 1, 1], [2, 0, 0]], tf.constant([1, 2, -1], tf.int64), [3, 2, 2])
    rows = deeprec.safe_embedding_lookup_multi_dim(table, ids, combiners=["tile", "sum"])
    largest = deeprec.safe_embedding_lookup_multi_dim(table, ids, combiners=["max"])
    harness.initialize(session)
    assert session.run(rows).tolist() == [[0, 2], [0, 0], [0, 0]]
    assert session.run(largest).tolist() == [[[0], [1]], [[0], [0]], [[0], [0]]]


def test_wrong_arguments_name_the_function(session):
    table = sok.EmbeddingVariable("table", 2)
    ids = tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [1, 1])
    with pytest.raises(TypeError, match="fused_safe_embedding_lookup_sparse: the ids must be a SparseTensor"):
        deeprec.fused_safe_embedding_lookup_sparse(table, tf.constant([1]))
    with pytest.raises(ValueError, match="blocknums is for variables of get_dynamic_dimension"):
        deeprec.fused_embedding_lookup_sparse(table, ids, blocknums=tf.constant([1]))
    with pytest.raises(ValueError, match="unknown combiner 'median'"):
        deeprec.safe_embedding_lookup_multi_dim(table, ids, combiners=["median"])
    with pytest.raises(ValueError, match=r"ids of shape \(1, 1\) need 1 to 1 combiners, not 2"):
        deeprec.safe_embedding_lookup_multi_dim(table, ids, combiners=["sum", "sum"])
    with pytest.raises(ValueError, match="weight_axis must be a dimension after the first, not 2"):
        deeprec.embedding_lookup_sparse_multi_dim(table, ids, None, weight_axis=2)
    with pytest.raises(ValueError, match="unknown combiner 'max'"):
        deeprec.fused_embedding_lookup_sparse(table, ids, combiner="max")


@pytest.mark.parametrize("layout", ["sparse", "ragged"])
def test_sequences_have_their_rows_in_their_places(session, layout):
    table = sok.EmbeddingVariable("table", 4)
    dense = tf.compat.v1.get_variable("v", initializer=ROWS)
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([3, 4, 9], tf.int64), [3, 2])
    weights = tf.SparseTensor(ids.indices, tf.constant([1.0, 2.0, -1.0]), [3, 2])
    if layout == "ragged":
        ids, weights = tf.RaggedTensor.from_sparse(ids), tf.RaggedTensor.from_sparse(weights)
    for arguments in ({"sp_weights": [None, weights]}, {"partition_strategy": [None, weights]}):
        outputs = deeprec.group_embedding_lookup_sparse(
            [table, dense],
            [ids, ids],
            ["mean", "mean"],
            is_sequence=True,
            params_num_per_group=1,
            **arguments,
        )
        load = sok.Saver().load_embedding_values(table, ROWS)
        plain, weighted = evaluate(session, load, *outputs)
        zero = np.zeros(4)
        np.testing.assert_array_equal(plain, [[ROWS[3], ROWS[4]], [zero, zero], [ROWS[9], zero]])
        np.testing.assert_array_equal(weighted, [[ROWS[3], 2 * ROWS[4]], [zero, zero], [-ROWS[9], zero]])
    with pytest.raises(ValueError, match="params_num_per_group must be at least 1, not 0"):
        deeprec.group_embedding_lookup_sparse([table], [ids], ["sum"], params_num_per_group=0)
    with pytest.raises(ValueError, match="side_by_side is for combined rows"):
        deeprec.group_embedding_lookup_sparse([table], [ids], ["sum"], is_sequence=True, side_by_side=True)


@pytest.mark.parametrize("root", [tf, tf.compat.v1])
def test_columns_take_do_fusion(session, root):
    fc = tf.compat.v1.feature_column
    plain = root.feature_column.categorical_column_with_identity("plain", 10)
    keys = root.feature_column.categorical_column_with_embedding("keys", tf.int64)
    columns = [root.feature_column.embedding_column(column, 4, do_fusion=True) for column in (plain, keys)]
    assert columns[0] == root.feature_column.embedding_column(plain, 4, initializer=columns[0].initializer)
    columns += fc.shared_embedding_columns([plain], 2, do_fusion="v2")
    features = {name: tf.constant([[1], [2]], tf.int64) for name in ("plain", "keys")}
    layer = fc.input_layer(features, columns)
    linear = fc.linear_model(features, [plain, keys], do_fusion=False)
    harness.initialize(session)
    assert [value.shape for value in session.run([layer, linear])] == [(2, 10), (2, 1)]
    with pytest.raises(TypeError, match="do_fusion must be a bool or the name of a kind of fusion, not 3"):
        fc.embedding_column(plain, 4, do_fusion=3)
