# Tags: versions
"""DeepRec's arithmetic for tables: the numbers of DeepRec's own tests, and the switch that chooses it."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import deeprec
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part
from sparse_operation_kit.checkpoint import cli
from sparse_operation_kit.deeprec import program_rules
from sparse_operation_kit.lookup import group

pytestmark = pytest.mark.cases_on_gpu(2)

session = harness.session
v1 = tf.compat.v1
fc = v1.feature_column
# The arguments of DeepRec's FTRL test, whose result after one step is known for keys that occurred three
# times and twice.
FTRL = {"learning_rate": 0.1, "l1_regularization_strength": 2.0, "l2_regularization_strength": 0.00001}
THREE_TIMES, TWICE = 0.8282884, 0.7927219


@pytest.fixture(autouse=True)
def deeprecs_names():
    """Installs DeepRec's names, without a choice of arithmetic and without earlier log messages."""
    deeprec.uninstall()
    deeprec.install()
    program_rules._told.clear()
    yield
    deeprec.uninstall()
    replacements.uninstall(Part.FEATURE_COLUMNS)


def ones():
    return v1.ones_initializer(tf.float32)


def rows_after_one_ftrl_step(session, table, lookup=tf.nn.embedding_lookup):
    rows = lookup(table, tf.constant([0, 0, 0, 1, 1], tf.int64))
    train = v1.train.FtrlOptimizer(**FTRL).minimize(tf.reduce_sum(rows * 2.0))
    harness.initialize(session)
    session.run(train)
    return session.run(rows)


def test_ftrl_is_deeprecs_and_evicts_as_in_its_test(session, tmp_path):
    """DeepRec's test has three columns of which the last, after one occurrence, is evicted by its norm."""
    option = deeprec.EmbeddingVariableOption(evict_option=deeprec.L2WeightEvict(l2_weight_threshold=0.9))
    column = deeprec.categorical_column_with_embedding("col_emb", dtype=tf.int64, ev_option=option)
    column = fc.embedding_column(column, dimension=3, initializer=ones(), combiner="mean")
    ids = tf.SparseTensor([[n, 0] for n in range(6)], tf.constant([0, 0, 0, 1, 1, 2], tf.int64), [6, 1])
    layer = fc.input_layer({"col_emb": ids}, [column])
    train = v1.train.FtrlOptimizer(**FTRL).minimize(tf.reduce_sum(layer * 2.0))
    saver = v1.train.Saver()
    harness.initialize(session)
    session.run(train)
    saver.save(session, str(tmp_path / "model"))
    with v1.Session() as other:
        saver.restore(other, str(tmp_path / "model"))
        found = other.run(layer)
    expected = np.repeat([THREE_TIMES] * 3 + [TWICE] * 2 + [1.0], 3).reshape(6, 3)
    np.testing.assert_allclose(found, expected, atol=5e-8)


def test_ftrl_of_a_table_by_name_is_deeprecs(session):
    found = rows_after_one_ftrl_step(session, tf.get_embedding_variable("t", 3, initializer=ones()))
    np.testing.assert_allclose(found[:, 0], [THREE_TIMES] * 3 + [TWICE] * 2, atol=5e-8)


def elementwise_ftrl():
    """TensorFlow's own, on an ordinary variable."""
    with harness.graph_and_session() as session:
        return rows_after_one_ftrl_step(session, v1.Variable(tf.ones([2, 3]), use_resource=True))


@pytest.mark.parametrize("how", ["not_installed", "switched_off", "own_table"])
def test_ftrl_is_tensorflows_elsewhere(how):
    if how == "not_installed":
        deeprec.uninstall()
    if how == "switched_off":
        deeprec.use_deeprec_arithmetic(False)
    make = sok.EmbeddingVariable if how == "own_table" else deeprec.get_embedding_variable
    with harness.graph_and_session() as session:
        found = rows_after_one_ftrl_step(session, make("t", 3, initializer=ones()))
    np.testing.assert_allclose(found, elementwise_ftrl(), rtol=1e-6)
    assert abs(found[0, 0] - THREE_TIMES) > 0.01


def test_an_ordinary_variable_keeps_tensorflows_ftrl():
    with_dialect = elementwise_ftrl()
    deeprec.uninstall()
    np.testing.assert_array_equal(with_dialect, elementwise_ftrl())


def test_group_lasso_in_double_precision_and_with_zero_rows(session):
    """Distinct rows, over steps; a large l1 sets whole rows to zero, and none of their elements alone."""
    rng = np.random.default_rng(0)
    dim, keys, rate, l1, l2 = 5, 8, 0.2, 6.0, 0.01
    w = rng.normal(size=[keys, dim])
    n, z = np.full([keys, dim], 0.1), np.zeros([keys, dim])
    table = deeprec.get_embedding_variable("t", dim)
    ids = v1.placeholder(tf.int64, [None])
    scale = v1.placeholder(tf.float32, [None, dim])
    rows = tf.nn.embedding_lookup(table, ids)
    train = v1.train.FtrlOptimizer(
        rate, l1_regularization_strength=l1, l2_regularization_strength=l2
    ).minimize(tf.reduce_sum(rows * scale))
    every = tf.nn.embedding_lookup(table, tf.range(keys, dtype=tf.int64))
    load = sok.Saver().load_embedding_values(table, [w.astype(np.float32)])
    harness.initialize(session)
    session.run(load)
    w = w.astype(np.float32).astype(np.float64)
    zero_rows = 0
    for _ in range(12):
        touched = np.unique(rng.integers(0, keys, 4))
        g = rng.normal(size=[len(touched), dim]).astype(np.float32)
        session.run(train, {ids: touched, scale: g})
        for key, gradient in zip_equal(touched, g.astype(np.float64)):
            new_n = n[key] + gradient**2
            z[key] += gradient - (np.sqrt(new_n) - np.sqrt(n[key])) / rate * w[key]
            norm = np.linalg.norm(z[key])
            w[key] = (l1 - norm) / norm / (np.sqrt(new_n) / rate + 2 * l2) * z[key] if norm > l1 else 0
            n[key] = new_n
        found = session.run(every)
        np.testing.assert_allclose(found, w, rtol=2e-5, atol=2e-6)
        zero_rows += (found == 0).all(axis=1).sum()
        assert ((found == 0).all(axis=1) | (found != 0).all(axis=1)).all()
    assert zero_rows > 0 and (w != 0).any()


def initial_rows(keys, dim=3, **option):
    """The initial rows of a new table, by a training lookup and by one that only reads."""
    with harness.graph_and_session() as session:
        init = deeprec.InitializerOption(v1.truncated_normal_initializer(), **option)
        table = tf.get_embedding_variable("t", dim, ev_option=tf.EmbeddingVariableOption(init_option=init))
        keys = tf.constant(keys, tf.int64)
        (read,) = group.lookup_group([group.DenseLookup(table, keys)], training=False)
        trained = tf.nn.embedding_lookup(table, keys)
        harness.initialize(session)
        read, trained = session.run(read), session.run(trained)
    np.testing.assert_array_equal(read, trained)
    return trained


@pytest.mark.parametrize("rows", [1, 4, 4096])
def test_initial_rows_are_those_of_a_matrix(rows):
    keys = np.concatenate([harness.HOSTILE_KEYS, np.arange(-9, 10)])
    found = initial_rows(keys, **({} if rows == 4096 else {"default_value_dim": rows}))
    matrix = {int(key) % rows: row for key, row in zip_equal(keys, found)}
    for key, row in zip_equal(keys, found):
        np.testing.assert_array_equal(row, matrix[int(key) % rows])
    assert len({row.tobytes() for row in matrix.values()}) == len(matrix)
    # The matrix consists of the initial rows of non-negative keys.
    deeprec.use_deeprec_arithmetic(False)
    own = initial_rows(np.array(sorted(matrix)))
    np.testing.assert_array_equal(own, [matrix[number] for number in sorted(matrix)])


def ordinary_rows(initializer, rows, dim):
    """The initial value of an ordinary variable."""
    with harness.graph_and_session() as session, harness.reference():
        variable = v1.get_variable("ordinary", [rows, dim], initializer=initializer)
        harness.initialize(session)
        return session.run(variable)


@pytest.mark.parametrize(
    "make", [v1.glorot_uniform_initializer, v1.truncated_normal_initializer, v1.random_uniform_initializer]
)
def test_an_initializer_with_a_seed_draws_the_matrix_as_for_an_ordinary_variable(session, make):
    """As in DeepRec's testEVInitializerWithKeyFetch."""
    init_option = tf.InitializerOption(make(seed=1), default_value_dim=8)
    keys = [0, 1, 2, 5, 6, 7, 8, 9, 10, -1]
    table = tf.get_embedding_variable("t", 3, ev_option=tf.EmbeddingVariableOption(init_option=init_option))
    rows = tf.nn.embedding_lookup(table, tf.constant(keys, tf.int64))
    # As DeepRec's tests do. The initializer, which replaces the table, draws the same rows again.
    session.run(v1.get_collection(v1.GraphKeys.EV_INIT_VAR_OPS))
    harness.initialize(session)
    found = session.run(rows)
    np.testing.assert_array_equal(found, ordinary_rows(make(seed=1), 8, 3)[np.array(keys) % 8])


def test_a_table_trains_as_an_ordinary_variable_with_the_same_seed(session):
    """As in DeepRec's testEVInitializer."""
    option = tf.EmbeddingVariableOption(init_option=tf.InitializerOption(default_value_dim=8192))
    initializer = v1.glorot_uniform_initializer(seed=3)
    table = tf.get_embedding_variable("t", 6, initializer=initializer, ev_option=option)
    ordinary = v1.get_variable("ordinary", [8192, 6], initializer=v1.glorot_uniform_initializer(seed=3))
    ids = tf.constant([0, 1, 2, 5, 6, 7], tf.int64)
    both = [tf.nn.embedding_lookup(one, ids) for one in (table, ordinary)]
    train = [v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows * 2)) for rows in both]
    harness.initialize(session)
    for _ in range(4):
        session.run(train)
    np.testing.assert_allclose(*session.run(both), rtol=1e-6)


@pytest.mark.parametrize("seed", [None, 5])
def test_rows_of_the_matrix_with_admission_after_a_restore_and_in_an_export(tmp_path, seed):
    option = tf.EmbeddingVariableOption(
        filter_option=tf.CounterFilter(filter_freq=2),
        init_option=tf.InitializerOption(
            v1.truncated_normal_initializer(seed=seed), default_value_dim=4, default_value_no_permission=7.0
        ),
    )
    prefix = str(tmp_path / "model")
    with harness.graph_and_session() as session:
        table = tf.get_embedding_variable("t", 3, ev_option=option)
        plain = tf.get_embedding_variable(
            "plain", 3, ev_option=tf.EmbeddingVariableOption(init_option=option.init_option)
        )
        ids = v1.placeholder(tf.int64, [None])
        rows, of_plain = (tf.nn.embedding_lookup(one, ids) for one in (table, plain))
        saver = v1.train.Saver()
        harness.initialize(session)
        assert (session.run(rows, {ids: [1, 2]}) == 7.0).all()
        one, two, five = session.run(rows, {ids: [1, 2, 5]})
        assert (five == 7.0).all() and not (one == two).all()
        np.testing.assert_array_equal(session.run(rows, {ids: [5]}), [one])
        first, third = session.run(of_plain, {ids: [1, 3]})
        if seed is not None:
            matrix = ordinary_rows(v1.truncated_normal_initializer(seed=seed), 4, 3)
            np.testing.assert_array_equal([one, two, first, third], matrix[[1, 2, 1, 3]])
        saver.save(session, prefix)
        with v1.Session() as other:
            saver.restore(other, prefix)
            np.testing.assert_array_equal(other.run(rows, {ids: [9, 9, -2, -2]}), [one, one, two, two])
            np.testing.assert_array_equal(other.run(of_plain, {ids: [-3, 7]}), [first, third])
    assert cli.main(["verify", prefix]) == 0
    compacted, exported = str(tmp_path / "compacted"), str(tmp_path / "1")
    assert cli.main(["compact", prefix, "--to", compacted]) == 0
    assert cli.main(["export", compacted, "--format", "saved_model_sok", "--to", exported]) == 0
    served = harness.served(exported, "plain", ids=[9, -1, 1])
    np.testing.assert_array_equal(served["rows"], [first, third, first])


def test_default_value_dim_is_checked():
    with pytest.raises(ValueError, match="default_value_dim must be below 2\\^32, not 4294967296"):
        tf.InitializerOption(default_value_dim=2**32)


def test_one_optimizer_trains_tables_of_both_kinds(session):
    tables = [
        tf.get_embedding_variable("theirs", 2, initializer=ones()),
        sok.EmbeddingVariable("ours", 2, initializer="ones"),
    ]
    ids = v1.placeholder(tf.int64, [None])
    bags = tf.RaggedTensor.from_row_lengths(ids, tf.ones_like(ids))
    rows = tf.nn.group_embedding_lookup_sparse(tables, [bags, bags], ["sum", "sum"])
    train = v1.train.AdamOptimizer(0.1).minimize(tf.add_n([tf.reduce_sum(one * one) for one in rows]))
    harness.initialize(session)
    session.run(train, {ids: [1, 2]})
    before = session.run(rows, {ids: [1]})
    np.testing.assert_array_equal(*before)
    session.run(train, {ids: [2]})
    theirs, ours = session.run(rows, {ids: [1]})
    assert (theirs == before[0]).all() and (ours < before[1]).all()


OPTIMIZERS = {
    "AdagradDecay": lambda: tf.train.AdagradDecayOptimizer(0.1, v1.train.get_or_create_global_step()),
    "Adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "FTRL": lambda: v1.train.FtrlOptimizer(**FTRL),
    "AdamAsync": lambda: tf.train.AdamAsyncOptimizer(0.1),
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(0.1),
    "Adam": lambda: v1.train.AdamOptimizer(0.1),
    "AdamW": lambda: tf.train.AdamWOptimizer(0.01, 0.1),
}
FILTERS = {
    "counter": lambda: tf.CounterFilter(filter_freq=3, before_lookup=True),
    "uint64": lambda: tf.CBFFilter(3, 50, 0.01, before_lookup=True),
    "uint8": lambda: tf.CBFFilter(3, 50, 0.01, tf.uint8, before_lookup=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", FILTERS)
def test_the_older_admission_as_in_deeprecs_tests(session, name, kind):
    """First all keys read zeros; then keys that occurred three times read ones after one update."""
    option = tf.EmbeddingVariableOption(filter_option=FILTERS[kind]())
    table = tf.get_embedding_variable("t", 3, initializer=ones(), ev_option=option)
    rows = tf.nn.embedding_lookup(table, tf.constant([1, 1, 1, 1, 2, 2, 2, 3, 3, 4], tf.int64))
    train = OPTIMIZERS[name]().minimize(tf.reduce_sum(rows * 2.0))
    harness.initialize(session)
    assert (session.run([rows, train])[0] == 0).all()
    second = session.run([rows, train])[0]
    assert (second[:7] != 1).all() and (second[:7] != 0).all()
    assert (second[7:] == 0).all()


def test_the_older_admission_of_one_key_a_step(session):
    option = tf.EmbeddingVariableOption(filter_option=FILTERS["uint64"]())
    table = tf.get_embedding_variable("t", 3, initializer=ones(), ev_option=option)
    rows = tf.nn.embedding_lookup(table, tf.constant([1], tf.int64))
    train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows * 2.0))
    harness.initialize(session)
    read = [session.run([rows, train])[0][0, 0] for _ in range(5)]
    np.testing.assert_allclose(read, [0, 0, 0, 0.8, 0.6], rtol=1e-6)


def test_adam_async_counts_steps_that_have_rows():
    """Powers do not change in empty steps: the model equals one that never had them."""
    found = []
    for batches in ([[1, 2], [2], [1]], [[1, 2], [], [2], [], [], [1]]):
        with harness.graph_and_session() as session:
            tables = [sok.EmbeddingVariable(f"t{n}", 2, initializer="ones") for n in range(2)]
            ids = [v1.placeholder(tf.int64, [None]) for _ in tables]
            rows = [tf.nn.embedding_lookup(*pair) for pair in zip_equal(tables, ids)]
            loss = tf.add_n([tf.reduce_sum(one * one) for one in rows])
            optimizer = sok.optimizers.AdamAsyncOptimizer(0.1)
            pairs = optimizer.compute_gradients(loss)
            clipped = [(tf.clip_by_norm(one, 1.5), variable) for one, variable in pairs]
            train = optimizer.apply_gradients([pairs[0], clipped[1]])
            powers = [one for one in v1.global_variables() if "beta1_power" in one.name]
            harness.initialize(session)
            for batch in batches:
                # The other table has rows in every step.
                session.run(train, {ids[0]: batch, ids[1]: [5]})
            found.append(session.run(rows[0], {ids[0]: [1, 2]}))
            steps = np.log(session.run(powers)) / np.log(0.9) - 1
            np.testing.assert_allclose(steps, [3, len(batches)], rtol=1e-4)
    np.testing.assert_array_equal(*found)


def made(name):
    with tf.Graph().as_default():
        return deeprec.get_embedding_variable(name, 2).row_arithmetic


def test_the_switch(caplog):
    caplog.set_level(logging.WARNING)
    assert made("a") and deeprec.uses_deeprec_arithmetic()
    deeprec.use_deeprec_arithmetic(False)
    assert not made("a")
    deeprec.use_deeprec_arithmetic(True)
    deeprec.uninstall()
    assert not deeprec.uses_deeprec_arithmetic(), "uninstall forgets the choice"
    assert not made("a")
    deeprec.use_deeprec_arithmetic(True)
    assert made("a"), "the choice needs no names"
    with pytest.raises(TypeError, match="enabled must be True or False, not 1"):
        deeprec.use_deeprec_arithmetic(1)


def test_with_this_librarys_arithmetic_a_graph_is_the_same_without_deeprecs_names():
    """An op more would change the seeds of all ops behind it."""
    graphs = []
    deeprec.use_deeprec_arithmetic(False)
    for change in (deeprec.install, deeprec.uninstall):
        change()
        with tf.Graph().as_default() as graph:
            column = sok.categorical_column_with_embedding("ids", dtype=tf.int64)
            column = fc.embedding_column(column, dimension=3, combiner="mean")
            ids = tf.SparseTensor([[0, 0]], tf.constant([5], tf.int64), [1, 1])
            dense = tf.random.uniform([3, 1]) @ fc.input_layer({"ids": ids}, [column])
            v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(dense))
            graphs.append(graph.as_graph_def())
    assert graphs[0] == graphs[1]


def test_the_log_says_once_what_holds(caplog):
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        made("a")
    deeprec.use_deeprec_arithmetic(False)
    for _ in range(2):
        made("a")
    messages = [record.getMessage() for record in caplog.records if "arithmetic" in record.getMessage()]
    assert len(messages) == 2
    assert "have DeepRec's arithmetic" in messages[0] and "use_deeprec_arithmetic(False)" in messages[0]
    assert "key % default_value_dim" in messages[0]
    assert "have this library's arithmetic" in messages[1]
