# Tags: versions
"""DeepRec's multi-hash, dynamic-dimension and adaptive variables and columns, against slow references."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat, deeprec

pytestmark = pytest.mark.cases_on_gpu(2)

v1 = tf.compat.v1
fc = v1.feature_column
# What reads the columns.
LAYERS = [
    "input_layer",
    pytest.param(
        "dense_features",
        marks=pytest.mark.skipif(not compat.HAS_KERAS_2, reason="Keras 3 has no graphs with sessions"),
    ),
]
IDS = np.array([0, 1, 2, 4, 6, 7], np.int64)


@pytest.fixture
def session():
    deeprec.install()
    with harness.graph_and_session() as session:
        yield session


def train(session, output, optimizer, steps=3):
    """The outputs before each step; the loss is twice their sum."""
    step = optimizer.minimize(tf.reduce_sum(2 * output))
    harness.initialize(session)
    outputs = []
    for _ in range(steps):
        outputs.append(session.run(output))
        session.run(step)
    return np.array(outputs)


@pytest.mark.parametrize("operation", ["add", "mul", "concat"])
def test_multihash_rows_are_composed_of_quotients_and_remainders_rows(session, operation):
    variable = deeprec.get_multihash_variable(
        "m", [[5, 6], [3, 6]], operation=operation, initializer=v1.random_normal_initializer()
    )
    rows = v1.nn.embedding_lookup(variable, IDS)
    first, second = variable.tables
    assert [first.name, second.name] == ["m_0:0", "m_1:0"]
    got = train(session, rows, v1.train.AdagradOptimizer(0.1), 2)[1]
    # The tables as they are after the last step.
    quotients, remainders, now = session.run([first, second, rows])
    q, r = quotients[IDS // 5], remainders[IDS % 3]
    wanted = {"add": q + r, "mul": q * r, "concat": np.concatenate([q, r], axis=1)}[operation]
    np.testing.assert_allclose(now, wanted, rtol=1e-6)
    assert not np.allclose(got, now)


def test_bags_of_composed_tables(session):
    variable = deeprec.get_multihash_variable(
        "m", [[5, 2], [5, 2]], operation="mul", initializer=v1.random_normal_initializer()
    )
    ids = tf.SparseTensor([[0, 0], [0, 2], [2, 1], [2, 2]], tf.constant([1, 7, -3, 9], tf.int64), [4, 3])
    weights = tf.SparseTensor(ids.indices, [1.0, 2.0, 1.0, 0.5], [4, 3])
    safe = v1.nn.safe_embedding_lookup_sparse(variable, ids, weights, combiner="sqrtn")
    fused = deeprec.fused_safe_embedding_lookup_sparse(variable, ids, weights, "sqrtn")
    default = v1.nn.safe_embedding_lookup_sparse([variable], ids, combiner="sum", default_id=3)
    kept = tf.sparse.retain(ids, ids.values >= 0)
    plain = v1.nn.embedding_lookup_sparse(variable, kept, None, combiner="mean")
    clipped = v1.nn.embedding_lookup(variable, [[1], [9]], max_norm=0.01)
    one, seven, three, nine = tf.unstack(v1.nn.embedding_lookup(variable, [1, 7, 3, 9]))
    harness.initialize(session)
    fetches = [safe, fused, default, plain, clipped, one, seven, three, nine]
    safe, fused, default, plain, clipped, one, seven, three, nine = session.run(fetches)
    zero = np.zeros(2)
    np.testing.assert_allclose(safe, [(one + 2 * seven) / np.sqrt(5), zero, nine, zero], rtol=1e-5)
    np.testing.assert_array_equal(fused, safe)
    np.testing.assert_allclose(default, [one + seven, three, nine, three], rtol=1e-6)
    np.testing.assert_allclose(plain, [(one + seven) / 2, zero, nine, zero], rtol=1e-6)
    assert clipped.shape == (2, 1, 2)
    shorter = [row * min(1, 0.01 / np.linalg.norm(row)) for row in (one, nine)]
    np.testing.assert_allclose(clipped[:, 0], shorter, rtol=1e-4)


def read(layer, features, columns, **arguments):
    """The columns' outputs, from `input_layer` or a `DenseFeatures`."""
    if layer == "input_layer":
        return fc.input_layer(features, columns, **arguments)
    return tf.keras.layers.DenseFeatures(columns, name=layer)(features, **arguments)


@pytest.mark.parametrize("layer", LAYERS)
def test_multihash_columns(session, layer):
    column = tf.feature_column.categorical_column_with_multihash("col", dims=(2, 2))
    column = fc.embedding_column(column, dimension=(2, 3), initializer=v1.ones_initializer())
    ids = tf.SparseTensor([[0, 0], [1, 1], [2, 2], [3, 3]], tf.constant([0, 1, 2, 3], tf.int64), [4, 4])
    outputs = train(session, read(layer, {"col": ids}, [column]), v1.train.AdagradOptimizer(0.1), 2)
    assert outputs.shape == (2, 4, 5)
    np.testing.assert_allclose(outputs[1], 1 - 0.4 / np.sqrt(16.1), rtol=1e-6)
    weights = {one.name: one.shape.as_list() for one in v1.trainable_variables()}
    names = [f"{layer}/col_embedding/embedding_weights_{part}:0" for part in range(2)]
    assert weights == dict(zip(names, ([2, 2], [2, 3])))


@pytest.mark.parametrize("layer", LAYERS)
def test_multihash_columns_of_two_operations_beside_another_column(session, layer):
    columns = []
    for number, (operation, widths) in enumerate([("add", (2, 2)), ("concat", (1, 2))]):
        column = deeprec.categorical_column_with_multihash(f"col{number}", (3, 4), operation=operation)
        initializer = v1.constant_initializer(number + 1.0)
        columns.append(fc.embedding_column(column, widths, "sum", initializer=initializer))
    features = {
        "col0": tf.constant([[1, 8], [0, -1]], tf.int64),
        "col1": tf.constant([[3, 5], [-1, -1]], tf.int64),
        "number": tf.constant([[0.5], [0.25]]),
    }
    output = read(layer, features, [*columns, fc.numeric_column("number")])
    harness.initialize(session)
    # Of two ids and of one; of two ids and of none.
    wanted = [[4, 4, 4, 4, 4, 0.5], [2, 2, 0, 0, 0, 0.25]]
    np.testing.assert_array_equal(session.run(output), wanted)


@pytest.mark.parametrize("wrong", [9, -1])
def test_an_id_without_rows_in_a_multihash_variable_is_an_error_with_its_name(session, wrong):
    variable = deeprec.get_multihash_variable("m", [[3, 2], [4, 2]])
    ids = v1.placeholder(tf.int64, [None])
    rows = v1.nn.embedding_lookup(variable, ids)
    harness.initialize(session)
    assert session.run(rows, {ids: [0, 8]}).shape == (2, 2)
    expected = rf"(?s)variable \S+m\S+: with 3 rows of quotients, ids must be from 0 to 8.*\[{wrong}\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
        session.run(rows, {ids: [8, wrong]})


def test_wrong_multihash_variables():
    with pytest.raises(ValueError, match="num_of_partitions must be 2, not 3"):
        deeprec.get_multihash_variable("m", [[2, 2]] * 3, num_of_partitions=3)
    with pytest.raises(ValueError, match="complementary_strategy must be 'Q-R', not 'hash'"):
        deeprec.get_multihash_variable("m", [[2, 2]] * 2, complementary_strategy="hash")
    with pytest.raises(ValueError, match=r"operation 'add' needs rows of one width, not of \[2, 3\]"):
        deeprec.get_multihash_variable("m", [[2, 2], [2, 3]])
    with pytest.raises(ValueError, match="operation must be 'add', 'mul' or 'concat', not 'max'"):
        deeprec.categorical_column_with_multihash("c", [2, 2], operation="max")
    with pytest.raises(ValueError, match="the dimension of a multi-hash column must be a pair, not 4"):
        fc.embedding_column(deeprec.categorical_column_with_multihash("c", [2, 2]), 4)


def dynamic(blocks=3, dim=2):
    return deeprec.get_dynamic_dimension_embedding_variable(
        "d", dim, blocks, initializer=v1.ones_initializer()
    )


def test_ids_use_their_number_of_blocks(session):
    variable = dynamic()
    ids = tf.constant([5, -5, 2**40, 5], tf.int64)
    rows = v1.nn.embedding_lookup(variable, ids, blocknums=tf.constant([1, 0, 3, 2]))
    assert rows.shape.as_list() == [4, 6]
    assert [op.type for op in session.graph.get_operations()].count("SokGroupLookup") == 1
    outputs = train(session, rows, v1.train.GradientDescentOptimizer(0.25), 2)
    used = np.repeat(np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 0]]), 2, axis=1)
    np.testing.assert_array_equal(outputs[0], used)
    # The first block of id 5 has gradients from two samples.
    np.testing.assert_array_equal(
        outputs[1], used * [[0, 0, 0, 0, 0, 0], [0] * 6, [0.5] * 6, [0, 0, 0.5, 0.5, 0, 0]]
    )
    sizes = session.run([table.size() for table in variable.tables])
    assert sizes == [2, 2, 1]


def test_all_blocks_are_a_row_of_an_embedding_variable(session):
    variable = dynamic(blocks=2, dim=4.0)
    whole = sok.EmbeddingVariable("whole", 8, initializer="ones")
    ids = tf.constant([0, 1, 2, 5, 6, -7], tf.int64)
    blocks = v1.nn.embedding_lookup(variable, ids, blocknums=tf.fill([6], 2))
    both = tf.stack([blocks, v1.nn.embedding_lookup(whole, ids)])
    outputs = train(session, both, v1.train.AdagradOptimizer(0.1), 3)
    np.testing.assert_array_equal(outputs[:, 0], outputs[:, 1])


def test_bags_use_the_most_blocks_of_an_id(session):
    variable = dynamic(blocks=2, dim=1)
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([4, 6, 4], tf.int64), [2, 2])
    rows = v1.nn.embedding_lookup_sparse(
        variable, ids, None, combiner="sum", blocknums=tf.constant([1, 1, 2])
    )
    harness.initialize(session)
    assert session.run(rows).tolist() == [[2, 1], [1, 1]]


def test_wrong_dynamic_dimensions(session):
    variable = dynamic()
    with pytest.raises(ValueError, match="'d', a variable of a dynamic dimension: blocknums must be given"):
        v1.nn.embedding_lookup(variable, [1])
    with pytest.raises(ValueError, match=r"blocknums of shape \(2,\) for ids of shape \(1,\)"):
        v1.nn.embedding_lookup(variable, [1], blocknums=[1, 2])
    with pytest.raises(ValueError, match="blocknums is for variables of get_dynamic_dimension"):
        v1.nn.embedding_lookup(tf.constant([[1.0]]), [0], blocknums=[1])
    with pytest.raises(ValueError, match="must be a whole number, not 2.5"):
        deeprec.get_dynamic_dimension_embedding_variable("e", 2.5, 1)
    with pytest.raises(ValueError, match="embedding_block_num must be at least 1, not 0"):
        deeprec.get_dynamic_dimension_embedding_variable("e", 2, 0)


SHARED = np.arange(8, dtype=np.float32).reshape(4, 2) + 1


def test_own_rows_start_with_the_shared_row_and_go_their_own_way(session):
    shared = v1.get_variable("shared", initializer=SHARED)
    table = sok.EmbeddingVariable("own", 2, initializer=0.0)
    ids = tf.SparseTensor([[0, 0], [1, 0], [2, 0]], tf.constant([1, 2**40, 3], tf.int64), [3, 1])
    mask = v1.placeholder(tf.int32, [3])
    rows = tf.nn.adaptive_embedding_lookup_sparse(
        shared, table, ids, tf.constant([2], tf.int64), None, adaptive_mask_tensor=mask
    )
    step = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
    harness.initialize(session)
    feed = {mask: [0, 1, 0]}
    for updates in range(3):
        got = session.run(rows, feed)
        np.testing.assert_array_equal(got, SHARED[[1, 2, 3]] - updates)
        session.run(step, feed)
        # Nothing but its own gradients moves an own row, and its gradients do not move the shared row.
        np.testing.assert_array_equal(session.run(shared)[2], SHARED[2])
    keys, values = harness.table_contents(session, table)
    assert keys.tolist() == [2**40]
    np.testing.assert_array_equal(values, [SHARED[2] - 3])


def test_initial_values_of_a_lookup(session):
    table = sok.EmbeddingVariable("own", 2, initializer=0.0)
    ids = tf.constant([[7, 8], [7, 9]], tf.int64)
    initial = tf.constant([[1.0, 2], [3, 4], [1, 2], [5, 6]])
    rows = v1.nn.embedding_lookup(table, ids, ev_init_value=initial, counts=None)
    assert rows.shape.as_list() == [2, 2, 2]
    outputs = train(session, rows, v1.train.GradientDescentOptimizer(0.5), 2)
    np.testing.assert_array_equal(outputs[0].reshape(4, 2), [[1, 2], [3, 4], [1, 2], [5, 6]])
    np.testing.assert_array_equal(outputs[1].reshape(4, 2), [[-1, 0], [2, 3], [-1, 0], [4, 5]])
    clipped = v1.nn.embedding_lookup(table, [8], ev_init_value=[[0.0, 0]], max_norm=1.0, name="clipped")
    assert clipped.op.name.startswith("clipped")
    row = np.array([[1.0, 2]])  # after both steps
    np.testing.assert_allclose(session.run(clipped), row / np.linalg.norm(row), rtol=1e-6)
    random = sok.EmbeddingVariable("random", 2)
    with pytest.raises(ValueError, match="'random': rows whose initial values a lookup brings need a table"):
        v1.nn.embedding_lookup(random, ids, ev_init_value=initial)
    filtered = sok.EmbeddingVariable("filtered", 2, initializer=0.0, admission=sok.CounterFilter(2))
    with pytest.raises(ValueError, match="with a constant initializer, by which new rows are recognized"):
        v1.nn.embedding_lookup(filtered, ids, ev_init_value=initial)


def adaptive_layer(ids, mask, dtype=tf.int64, option=None, layer="input_layer", training=None, **options):
    arguments = {} if option is None else {"ev_option": option}
    column = tf.feature_column.categorical_column_with_adaptive_embedding(
        "col", hash_bucket_size=10, dtype=dtype, **arguments
    )
    column = fc.embedding_column(column, dimension=3, **options)
    arguments = {} if training is None else {"training": training}
    return read(layer, {"col": ids}, [column], adaptive_mask_tensors={"col": mask}, **arguments)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_adaptive_example_of_deeprecs_document(session, layer):
    places = [[i, 0] for i in range(10)]
    ids = tf.SparseTensor(places, tf.constant([1, 2, 3, 4, 5, 6, 7, 8, 9, 0], tf.int64), [10, 1])
    mask = np.array([1, 0, 1, 0, 1, 0, 0, 1, 0, 1])
    output = adaptive_layer(ids, tf.constant(mask, tf.int32), layer=layer, initializer=v1.ones_initializer())
    outputs = train(session, output, v1.train.AdagradOptimizer(0.1), 3)
    np.testing.assert_array_equal(outputs[0], 1)
    own = outputs[:, mask == 1, 0]
    np.testing.assert_array_equal(own, own[:, :1] * np.ones(5))
    accumulator = 0.1 + 4
    first = 1 - 0.2 / np.sqrt(accumulator)
    np.testing.assert_allclose(own[1], first, rtol=1e-6)
    np.testing.assert_allclose(own[2], first - 0.2 / np.sqrt(accumulator + 4), rtol=1e-6)
    (table,) = [one for one in v1.global_variables() if isinstance(one, sok.EmbeddingVariable)]
    assert sorted(harness.table_contents(session, table)[0]) == [0, 1, 3, 5, 8]
    names = [one.name for one in v1.trainable_variables()]
    assert f"{layer}/col_embedding/shared_embedding_weights:0" in names
    assert table.name.partition(":")[0] == f"{layer}/col_embedding/embedding_weights"


def test_adaptive_columns_of_strings_with_padding_filters_and_evaluation(session):
    words = tf.constant([["a", ""], ["b", "a"], ["", ""]])
    option = deeprec.EmbeddingVariableOption(filter_option=deeprec.CounterFilter(filter_freq=3))
    layer = adaptive_layer(
        words, tf.constant([1, 1, 0, 1]), tf.string, option, initializer=v1.ones_initializer()
    )
    with sok.feature_columns.training_scope(False):
        evaluated = adaptive_layer(words, [True, True, True], tf.string, initializer=v1.ones_initializer())
    harness.initialize(session)
    np.testing.assert_array_equal(session.run(evaluated), [[1] * 3, [1] * 3, [0] * 3])
    first, second = session.run(layer), session.run(layer)
    np.testing.assert_array_equal(first, np.zeros((3, 3)))
    # "a" is admitted in the second step, with the shared row; "b" is not.
    np.testing.assert_array_equal(second[:, 0], [1, 0.5, 0])


@pytest.mark.skipif(not compat.HAS_KERAS_2, reason="Keras 3 has no graphs with sessions")
def test_dense_features_that_is_not_training_adds_no_adaptive_rows(session):
    ids = tf.constant([[1], [2]], tf.int64)
    initializer = v1.constant_initializer(0.5)
    output = adaptive_layer(
        ids, [True, False], layer="dense_features", training=False, initializer=initializer
    )
    harness.initialize(session)
    np.testing.assert_array_equal(session.run(output), np.full((2, 3), 0.5))
    (table,) = [one for one in v1.global_variables() if isinstance(one, sok.EmbeddingVariable)]
    assert harness.table_contents(session, table)[0].size == 0


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    "masks, error, message",
    [
        (None, ValueError, r"DenseFeatures, needs adaptive_mask_tensors=\{'col': mask\}"),
        (5, TypeError, "adaptive_mask_tensors must be a dictionary of tensors, not 5"),
    ],
)
def test_adaptive_columns_need_masks(session, layer, masks, error, message):
    column = fc.embedding_column(deeprec.categorical_column_with_adaptive_embedding("col", 10, tf.int64), 2)
    with pytest.raises(error, match=message):
        read(layer, {"col": tf.constant([[1]], tf.int64)}, [column], adaptive_mask_tensors=masks)


def test_wrong_adaptive_columns(session):
    ids = tf.constant([[1]], tf.int64)
    column = deeprec.categorical_column_with_adaptive_embedding("col", 10, tf.int64)
    with pytest.raises(ValueError, match="the mask is float32, not of integers"):
        adaptive_layer(ids, tf.constant([0.5]))
    with pytest.raises(ValueError, match="hash_bucket_size must be at least 1, not 0"):
        deeprec.categorical_column_with_adaptive_embedding("col", 0)
    with pytest.raises(ValueError, match="max_norm is not supported for adaptive columns"):
        fc.embedding_column(column, 2, max_norm=1.0)
    with pytest.raises(ValueError, match="adaptive_mask_tensor must be given"):
        deeprec.adaptive_embedding_lookup_sparse(None, None, None, None)


@pytest.mark.skipif(not compat.HAS_KERAS_2, reason="Keras 3 has no graphs with sessions")
def test_sequences_of_keys_are_those_of_tensorflows_column(session):
    sequence = tf.SparseTensor(
        [[0, 0], [0, 1], [1, 1], [2, 2], [3, 3], [4, 3], [4, 4]],
        tf.constant([1, 3, 2, 3, 4, 5, 3], tf.int64),
        [5, 5],
    )
    theirs = tf.feature_column.sequence_categorical_column_with_identity("col", num_buckets=6)
    ours = tf.feature_column.sequence_categorical_column_with_embedding("col", dtype=tf.int64)
    outputs = []
    for column in (theirs, ours):
        column = fc.embedding_column(column, dimension=3, initializer=v1.ones_initializer())
        rows, lengths = sequence_layer({"col": sequence}, column)
        outputs.append(rows)
    both = tf.stack(outputs)
    trained = train(session, both, v1.train.AdagradOptimizer(0.1), 3)
    assert trained.shape == (3, 2, 5, 5, 3)
    np.testing.assert_array_equal(trained[:, 0], trained[:, 1])
    assert session.run(lengths).tolist() == [2, 2, 3, 4, 5]
    single = fc.embedding_column(deeprec.categorical_column_with_embedding("col", tf.int64), 3)
    with pytest.raises(ValueError, match="'col_embedding' is not over a sequence column"):
        single.get_sequence_dense_tensor(None, None)


def sequence_layer(features, column):
    """The rows [batch, steps, dim] and lengths of a sequence column."""
    if hasattr(tf, "contrib"):
        return tf.contrib.feature_column.sequence_input_layer(features, [column])
    return tf.keras.experimental.SequenceFeatures([column])(features)


@pytest.mark.parametrize("name", [None, "group"])
def test_ragged_features_go_through_columns_of_a_scope(session, name):
    ids = tf.ragged.constant([[5, 7], [], [9, 5, 1]], dtype=tf.int64)
    weights = tf.ragged.constant([[0.5, 2.0], [], [1.0, 1.0, 3.0]])
    features = {"keys": ids, "plain": ids, "weights": weights}
    with tf.feature_column.group_embedding_column_scope(name=name):
        keys = deeprec.categorical_column_with_embedding("keys", tf.int64)
        plain = tf.feature_column.categorical_column_with_identity("plain", 10)
        columns = [
            fc.embedding_column(
                tf.feature_column.weighted_categorical_column(one, "weights"),
                2,
                "sum",
                initializer=v1.ones_initializer(),
            )
            for one in (keys, plain)
        ]
    layer = fc.input_layer(features, columns)
    only_plain = fc.input_layer(features, columns[1:])
    linear = fc.linear_model(features, [keys, plain])
    harness.initialize(session)
    layer, only_plain, linear = session.run([layer, only_plain, linear])
    np.testing.assert_array_equal(layer, np.array([[2.5] * 4, [0] * 4, [5] * 4]))
    np.testing.assert_array_equal(only_plain, layer[:, 2:])
    assert linear.shape == (3, 1)


def test_the_older_name_of_the_strategy():
    with pytest.raises(
        ValueError, match="strategy must be one of 'collective', 'localized', 'parameter_server', not 'other'"
    ):
        tf.config.experimental.enable_group_embedding(fusion_type="other")
    tf.config.experimental.enable_group_embedding(fusion_type="localized")
