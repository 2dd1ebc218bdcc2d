# Tags: versions
"""sparse_operation_kit.experiment on one rank, compared with TensorFlow's variables and lookups."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import harness
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit import experiment as sok
from sparse_operation_kit.compat.tensors import with_values

pytestmark = pytest.mark.cases_on_gpu(2)

ROWS, DIMS, COMBINERS = (17, 7, 40), (3, 5, 1), ("sum", "mean", "sqrtn")
BATCH = 6
KERAS = [module for _, module in compat.legacy_keras_optimizers()]


@contextlib.contextmanager
def graph_and_session():
    """A session in a new default graph, without sok.Init, as in programs of the original."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        yield session


@pytest.fixture
def session():
    with graph_and_session() as session:
        yield session


def random_ids(rng, rows, kind, with_empty=True):
    """The ids of BATCH bags, and their weights, as RaggedTensors or SparseTensors."""
    lengths = rng.integers(0 if with_empty else 1, 5, BATCH)
    lengths[-1] = 2  # TensorFlow's lookup drops empty bags at the end
    values = tf.constant(rng.integers(0, rows, lengths.sum()))
    ids = tf.RaggedTensor.from_row_lengths(values, lengths)
    weights = with_values(ids, tf.constant(rng.uniform(0.5, 2, lengths.sum()), tf.float32))
    return (ids, weights) if kind == "ragged" else (ids.to_sparse(), weights.to_sparse())


def in_tensorflow(variable, ids, weights, combiner):
    if isinstance(ids, tf.RaggedTensor):
        ids, weights = ids.to_sparse(), weights if weights is None else weights.to_sparse()
    outputs = tf.nn.embedding_lookup_sparse(variable, ids, weights, combiner=combiner)
    if compat.IS_TENSORFLOW_2:
        return outputs
    # 1.15 divides the zeros of weighted bags without ids by zero.
    return tf.where(tf.math.is_nan(outputs), tf.zeros_like(outputs), outputs)


def make_variables(kind, values):
    """Variables with `values`, and their initializer."""
    if kind == "dynamic":
        tables = [sok.DynamicVariable(dimension=value.shape[1]) for value in values]
        return tables, [sok.assign(t, np.arange(len(v)), v) for t, v in zip_equal(tables, values)]
    mode = {"distributed": None, "localized": "localized:0"}[kind]
    return [sok.Variable(value, mode=mode) for value in values], []


@pytest.mark.parametrize("kind", ["distributed", "localized", "dynamic"])
@pytest.mark.parametrize("ids_kind", ["ragged", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_lookup_sparse_trains_as_tensorflows_lookups_do(session, kind, ids_kind, weighted):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in zip_equal(ROWS, DIMS)]
    tables, fill = make_variables(kind, values)
    ordinary = [tf.compat.v1.Variable(value, use_resource=True) for value in values]
    ids, weights = zip_equal(*(random_ids(rng, rows, ids_kind) for rows in ROWS))
    weights = weights if weighted else [None] * 3
    got = sok.lookup_sparse(tables, ids, sp_weights=weights if weighted else None, combiners=COMBINERS)
    want = [in_tensorflow(*of) for of in zip_equal(ordinary, ids, weights, COMBINERS)]
    upstream = [rng.standard_normal([BATCH, dim]) for dim in DIMS]
    steps = []
    for variables, outputs in ((tables, got), (ordinary, want)):
        loss = tf.add_n([tf.reduce_sum(o * u) for o, u in zip_equal(outputs, upstream)])
        gradients = tf.gradients(loss, variables)
        optimizer = sok.OptimizerWrapper(tf.compat.v1.train.AdagradOptimizer(0.3))
        steps.append(optimizer.apply_gradients(zip_equal(gradients, variables)))
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(fill)
    for _ in range(3):
        harness.assert_close_arrays(*session.run([got, want]), rtol=1e-5, atol=1e-6)
        session.run(steps)
    for table, variable in zip_equal(tables, ordinary):
        trained = session.run(tf.nn.embedding_lookup(table, tf.range(variable.shape[0], dtype=tf.int64)))
        np.testing.assert_allclose(trained, session.run(variable), rtol=1e-5, atol=1e-6)


def test_all_tables_of_a_lookup_are_one_op(session):
    tables = [sok.Variable(shape=(9, dim), initializer="ones") for dim in DIMS]
    before = set(session.graph.get_operations())
    ids, _ = random_ids(np.random.default_rng(0), 9, "ragged")
    sok.lookup_sparse(tables, [ids] * 3)
    made = [op.type for op in session.graph.get_operations() if op not in before]
    assert made.count("SokGroupLookup") == 1


def test_one_variable_and_its_ids_give_a_tensor_and_the_mean(session):
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    table = sok.Variable(value)
    ids = tf.RaggedTensor.from_row_lengths(tf.constant([1, 3, 3], tf.int32), [2, 1])
    output = sok.lookup_sparse(table, ids)
    as_list = sok.lookup_sparse([table], [ids], combiners="sum")
    session.run(tf.compat.v1.global_variables_initializer())
    np.testing.assert_array_equal(session.run(output), [(value[1] + value[3]) / 2, value[3]])
    np.testing.assert_array_equal(session.run(as_list)[0], [value[1] + value[3], value[3]])


@pytest.mark.parametrize("shape", [[5], [2, 3], [2, 1, 3], [0]])
def test_all2all_dense_embedding(session, shape):
    value = np.random.default_rng(0).standard_normal([11, 4]).astype(np.float32)
    table = sok.Variable(value)
    ids = np.random.default_rng(1).integers(0, 11, shape)
    output = sok.all2all_dense_embedding(table, tf.constant(ids))
    (gradient,) = tf.gradients(output, [table])
    assert isinstance(gradient, tf.IndexedSlices)
    session.run(tf.compat.v1.global_variables_initializer())
    np.testing.assert_array_equal(session.run(output), value[ids])


@pytest.mark.parametrize(
    ("initializer", "value"),
    [("13", 13.0), ("-0.5", -0.5), (2, 2.0), ("ones", 1.0), ("random", None), (None, None)],
)
def test_initializers_of_dynamic_variables(session, initializer, value):
    table = sok.DynamicVariable(dimension=3, initializer=initializer)
    rows = tf.nn.embedding_lookup(table, tf.constant([0, 1, 2**40], tf.int64))
    size = table.size
    session.run(tf.compat.v1.global_variables_initializer())
    assert session.run(size).tolist() == [0, 3]
    got = session.run(rows)
    assert session.run(size).tolist() == [3, 3]
    if value is None:
        assert np.unique(got).size == 9 and np.all(np.abs(got) <= 0.05)
    else:
        np.testing.assert_array_equal(got, np.full([3, 3], value))


@pytest.mark.parametrize("key_type", [None, tf.int64, tf.int32, tf.uint32])
def test_assign_and_export(session, key_type):
    table = sok.DynamicVariable(dimension=2, key_type=key_type)
    keys = np.array([5, 0, 9, 2**31 - 1])
    rows = np.random.default_rng(0).standard_normal([4, 2]).astype(np.float32)
    assign = sok.assign(table, tf.constant(keys, table.key_type), tf.constant(rows))
    export = sok.export(table)
    assert export[0].dtype == table.key_type == (key_type or tf.int64)
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(assign)
    got_keys, got_rows = session.run(export)
    np.testing.assert_array_equal(got_keys, keys)
    np.testing.assert_array_equal(got_rows, rows)


def test_a_hybrid_variable_evicts_the_least_recently_used_rows(session):
    table = sok.DynamicVariable(4, var_type="hybrid", max_capacity=3, init_capacity=2, max_hbm_for_vectors=1)
    keys = tf.compat.v1.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(table, keys)
    session.run(tf.compat.v1.global_variables_initializer())
    for drawn in ([1, 2, 3], [1, 3], [4]):
        session.run(rows, {keys: drawn})
    assert sorted(session.run(sok.export(table)[0])) == [1, 3, 4]


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.compat.v1.train.GradientDescentOptimizer(0.5),
        lambda: tf.compat.v1.train.MomentumOptimizer(0.5, 0.9),
        lambda: tf.compat.v1.train.AdamOptimizer(0.5),
        *[lambda keras=keras: keras.SGD(0.5, momentum=0.9) for keras in KERAS],
        *[lambda keras=keras: keras.Adagrad(0.5) for keras in KERAS],
    ],
)
def test_wrapped_optimizers_do_what_they_do_to_ordinary_variables(session, make):
    rng = np.random.default_rng(0)
    value = rng.standard_normal([9, 2]).astype(np.float32)
    variables = [sok.Variable(value), tf.compat.v1.Variable(value, use_resource=True)]
    keys = tf.compat.v1.placeholder(tf.int64, [None])
    steps = []
    for variable in variables:
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(variable, keys)))
        optimizer = sok.OptimizerWrapper(make())
        steps.append(optimizer.apply_gradients(zip_equal(tf.gradients(loss, [variable]), [variable])))
    session.run(tf.compat.v1.global_variables_initializer())
    for _ in range(4):
        session.run(steps, {keys: rng.integers(0, 9, 5)})
    np.testing.assert_allclose(*session.run(variables), rtol=1e-5, atol=1e-6)


def test_the_learning_rate_of_sgd_can_be_changed(session):
    table = sok.DynamicVariable(2, initializer="1")
    optimizer = sok.SGD(lr=0.5)
    rows = tf.nn.embedding_lookup(table, [3])
    step = optimizer.apply_gradients(zip_equal(tf.gradients(rows, [table]), [table]))
    slower = optimizer.lr.assign(0.125)
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(step)
    session.run(slower)
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), [[0.375, 0.375]])


def test_filter_variables(session):
    ours = [
        sok.DynamicVariable(2),
        sok.Variable(np.ones([2, 2])),
        sok.Variable([[1.0]], mode="localized:0"),
    ]
    other = tf.compat.v1.Variable(1.0)
    got = sok.filter_variables(iter([ours[0], other, *ours[1:]]))
    assert got == (ours, [other])


@pytest.mark.parametrize("mode", [None, "distributed", "localized:0"])
def test_a_variable_read_as_a_tensor_is_its_rows_by_key(session, mode):
    value = np.random.default_rng(0).standard_normal([11, 3]).astype(np.float32)
    table = sok.Variable(value, mode=mode, name="weights")
    assert table.shape.as_list() == [11, 3] and table.global_shape == (11, 3)
    assert table.m_var_name == "weights"
    reads = [table, table.read_value(), table.value(), tf.convert_to_tensor(table), table + 0.0]
    session.run(tf.compat.v1.global_variables_initializer())
    for got in [*session.run(reads), table.eval(session)]:
        np.testing.assert_array_equal(got, value)


def test_an_initial_value_may_be_fed(session):
    fed = tf.compat.v1.placeholder(tf.float32, [4, 2])
    table = sok.Variable(fed)
    session.run(tf.compat.v1.global_variables_initializer(), {fed: np.full([4, 2], 3.0)})
    np.testing.assert_array_equal(session.run(table), np.full([4, 2], 3.0))


@pytest.mark.parametrize("key", [-1, 4, 2**40])
def test_a_key_beyond_the_rows_is_an_error_that_changes_nothing(session, key):
    table = sok.Variable(np.ones([4, 2]), name="weights")
    keys = tf.constant([1, key], tf.int64)
    lookups = [
        tf.nn.embedding_lookup(table, keys),
        sok.all2all_dense_embedding(table, keys),
        sok.lookup_sparse(table, tf.RaggedTensor.from_row_lengths(keys, [2])),
        sok.assign(table, keys, np.zeros([2, 2])),
    ]
    session.run(tf.compat.v1.global_variables_initializer())
    for lookup in lookups:
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"weights.*key {key}:.*\[0, 4\)"):
            session.run(lookup)
    np.testing.assert_array_equal(session.run(table), np.ones([4, 2]))
    assert session.run(table.size()) == 4


def test_dump_and_load(tmp_path):
    rng = np.random.default_rng(0)
    value = rng.standard_normal([7, 3]).astype(np.float32)
    kept = []
    for function in (sok.dump, sok.load):
        with graph_and_session() as session:
            fixed = sok.Variable(value if function is sok.dump else np.zeros([7, 3]), name="fixed")
            grown = sok.DynamicVariable(2, name="grown", key_type=tf.int32)
            lookup = tf.nn.embedding_lookup(grown, tf.constant([3, -5], tf.int32))
            done = function(str(tmp_path / "weights"), [fixed, grown], sok.SGD(0.1))
            session.run(tf.compat.v1.global_variables_initializer())
            if function is sok.dump:
                session.run(lookup)
            assert session.run(done) == b"OK"
            kept.append([session.run(fixed), *session.run(sok.export(grown))])
    harness.assert_equal_arrays(*kept)
    np.testing.assert_array_equal(kept[1][0], value)


def test_rows_of_another_number_are_refused(tmp_path):
    for function, rows in ((sok.dump, 7), (sok.load, 9), (sok.load, 5)):
        with graph_and_session() as session:
            done = function(str(tmp_path), sok.Variable(np.ones([rows, 2]), name="weights"))
            session.run(tf.compat.v1.global_variables_initializer())
            if function is sok.dump:
                session.run(done)
            else:
                with pytest.raises(tf.errors.InvalidArgumentError, match="weights"):
                    session.run(done)


@pytest.mark.parametrize("function", [sok.dump, sok.load])
def test_an_optimizers_state_needs_tensorflows_saver(tmp_path, function):
    with tf.Graph().as_default():
        table = sok.DynamicVariable(2)
        for optimizer in (
            tf.compat.v1.train.AdagradOptimizer(0.1),
            *[sok.OptimizerWrapper(keras.Adam(0.1)) for keras in KERAS],
            [tf.compat.v1.train.AdamOptimizer(0.1)],
        ):
            with pytest.raises(ValueError, match=r"tf\.compat\.v1\.train\.Saver"):
                function(str(tmp_path), table, optimizer)
        with pytest.raises(ValueError, match="at least one variable"):
            function(str(tmp_path), [])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: sok.Variable(np.ones([2, 2]), mode="localized:1"),
            ValueError,
            r"rank 1: the ranks are \[0, 1\)",
        ),
        (lambda: sok.Variable(np.ones([2, 2]), mode="spread"), ValueError, "mode.*spread"),
        (lambda: sok.Variable(np.ones([2])), ValueError, "two known dimensions"),
        (lambda: sok.Variable(), ValueError, "initial_value or shape"),
        (lambda: sok.Variable(np.ones([2, 2]), constraint=abs), ValueError, "constraint"),
        (lambda: sok.Variable(np.ones([2, 2]), dtype=tf.float64), ValueError, "float32"),
        (lambda: sok.LocalizedVariable(np.ones([2, 2])), ValueError, "target_gpu"),
        (lambda: sok.LocalizedVariable(np.ones([2, 2]), target_gpu=0, global_gpu_id=1), ValueError, "rank 0"),
        (lambda: sok.DynamicVariable(2, var_type="disk"), ValueError, "var_type.*disk"),
        (lambda: sok.DynamicVariable(2, capacity=3), TypeError, "capacity"),
        (lambda: sok.DynamicVariable(2, dtype=tf.float64), ValueError, "float32"),
        (lambda: sok.DynamicVariable(2, mode="localized:7"), ValueError, "rank 7"),
        (lambda: sok.init(comm_tool="mpi"), ValueError, "horovod.*mpi"),
        (lambda: sok.export(tf.Variable(1.0)), TypeError, "EmbeddingVariable"),
        (lambda: sok.OptimizerWrapper("sgd"), TypeError, "OptimizerWrapper"),
        (
            lambda: sok.lookup_sparse([sok.DynamicVariable(2)], [tf.ragged.constant([[1]])], ["sum"]),
            TypeError,
            "combiners=",
        ),
    ],
)
def test_unsupported_arguments_are_errors_that_tell_why(make, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        make()


def test_init_may_be_called_again_and_changes_nothing():
    assert sok.init() is None
    assert sok.init(use_legacy_optimizer=False) is None
    with harness.graph_and_session() as session:
        table = sok.DynamicVariable(2, initializer="4")
        rows = tf.nn.embedding_lookup(table, [1])
        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(rows), [[4, 4]])
