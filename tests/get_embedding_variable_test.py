# Tags: versions
# Not on GPUs: graphs, names and libraries
"""sok.get_embedding_variable: names and reuse as in get_variable, DeepRec's options, no need of sok.Init."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

import harness
import sparse_operation_kit as sok
from sparse_operation_kit.ranks import initialize

pytestmark = pytest.mark.cases_on_gpu(2)

v1 = tf.compat.v1
Option = sok.EmbeddingVariableOption


@pytest.fixture(autouse=True)
def unconfigured_process():
    """Each test starts like a process that has not called sok.Init yet."""
    initialize._reset()
    yield
    initialize._reset()


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def rows_of(table, keys, seed=7):
    """The rows of `keys` in a new session of the table's graph that runs only the initializer before."""
    graph = table.graph
    with graph.as_default(), v1.Session(graph=graph) as session:
        v1.set_random_seed(seed)
        rows = tf.nn.embedding_lookup(table, tf.constant(keys, tf.int64))
        session.run(v1.global_variables_initializer())
        return session.run(rows)


def test_it_runs_without_init(graph):
    table = sok.get_embedding_variable("table", 3, initializer=tf.ones_initializer())
    np.testing.assert_array_equal(rows_of(table, harness.HOSTILE_KEYS), np.ones([9, 3]))


def test_init_is_taken_where_the_program_runs_it(graph):
    sok_init = sok.Init(global_batch_size=8, seed=5)
    table = sok.get_embedding_variable("table", 4)
    other = sok.EmbeddingVariable("table_2", 4)
    assert [op.type for op in graph.get_operations()].count("SokInit") == 1
    with v1.Session() as session:
        session.run(sok_init)
        harness.initialize(session)
        session.run([table.size(), other.size()])


def test_init_may_come_after_it_in_another_graph(graph):
    sok.get_embedding_variable("table", 4)
    with tf.Graph().as_default(), v1.Session() as session:
        assert session.run(sok.Init(global_batch_size=17, seed=5)) == b"OK"


def test_the_seed_is_the_graphs():
    rows = []
    for seed in (1, 1, 2):
        with tf.Graph().as_default():
            v1.set_random_seed(seed)
            rows.append(rows_of(sok.get_embedding_variable("table", 4), [1, 2, 3], seed))
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_graphs_without_seed_have_the_same_rows():
    rows = []
    for _ in range(2):
        with tf.Graph().as_default():
            table = sok.get_embedding_variable("table", 4)
            with v1.Session() as session:
                found = tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64))
                harness.initialize(session)
                rows.append(session.run(found))
    np.testing.assert_array_equal(rows[0], rows[1])


def test_a_monitored_session_and_a_restore_need_no_init(tmp_path):
    def run(steps):
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            table = sok.get_embedding_variable("table", 2)
            rows = tf.nn.embedding_lookup(table, tf.range(5, dtype=tf.int64))
            step = v1.train.get_or_create_global_step()
            train = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows), global_step=step)
            with v1.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path / str(steps))) as session:
                for _ in range(steps):
                    session.run(train)
        with tf.Graph().as_default(), v1.Session() as session:
            table = sok.get_embedding_variable("table", 2)
            rows = tf.nn.embedding_lookup(table, tf.range(5, dtype=tf.int64))
            v1.train.Saver().restore(session, v1.train.latest_checkpoint(str(tmp_path / str(steps))))
            return session.run(rows)

    moved = run(1) - run(3)
    assert np.all(moved > 0.1)


def test_names_are_those_of_variable_scopes(graph):
    with v1.variable_scope("a"), v1.variable_scope("b"), tf.name_scope("no_part_of_it"):
        assert sok.get_embedding_variable("x", 2).m_var_name == "a/b/x"
    with v1.variable_scope("a"):
        assert sok.get_embedding_variable("x", 2).m_var_name == "a/x"


@pytest.mark.parametrize("reuse", [True, v1.AUTO_REUSE])
def test_reuse_gives_the_same_variable(graph, reuse):
    with v1.variable_scope("s"):
        table = sok.get_embedding_variable("x", 2)
    with v1.variable_scope("s", reuse=reuse):
        assert sok.get_embedding_variable("x", 2) is table
    assert v1.global_variables() == [table]


def test_the_same_name_without_reuse_is_an_error(graph):
    with v1.variable_scope("s"):
        sok.get_embedding_variable("x", 2)
        with pytest.raises(ValueError, match="'s/x' already exists"):
            sok.get_embedding_variable("x", 2)


def test_reuse_of_an_unknown_name_is_an_error(graph):
    with v1.variable_scope("s", reuse=True), pytest.raises(ValueError, match="'s/x' does not exist"):
        sok.get_embedding_variable("x", 2)
    with v1.variable_scope("s", reuse=v1.AUTO_REUSE):
        assert sok.get_embedding_variable("x", 2).m_var_name == "s/x"


def test_ordinary_variables_and_tables_share_their_names(graph):
    v1.get_variable("x", [2])
    with pytest.raises(ValueError, match="'x' already exists"):
        sok.get_embedding_variable("x", 2)
    sok.get_embedding_variable("y", 2)
    with pytest.raises(ValueError, match="already exists"):
        v1.get_variable("y", [3, 2])
    with v1.variable_scope("", reuse=True), pytest.raises(ValueError, match="not an embedding variable"):
        sok.get_embedding_variable("x", 2)


@pytest.mark.parametrize(("dim", "dtype"), [(3, tf.int64), (2, tf.int32)])
def test_another_shape_under_a_name_that_is_taken_is_an_error(graph, dim, dtype):
    sok.get_embedding_variable("x", 2)
    with v1.variable_scope("", reuse=True), pytest.raises(ValueError, match="'x' exists with dim 2"):
        sok.get_embedding_variable("x", dim, key_dtype=dtype)


def test_the_default_is_a_normal_distribution_cut_at_two(graph):
    rows = rows_of(sok.get_embedding_variable("x", 16), np.arange(4000))
    assert np.abs(rows).max() <= 2.0
    assert abs(rows.mean()) < 0.01
    assert abs(rows.std() - 0.8796) < 0.01


def test_the_options_initializer_goes_first(graph, caplog):
    option = Option(init_option=sok.InitializerOption(tf.constant_initializer(3.0)))
    table = sok.get_embedding_variable("x", 2, initializer=tf.ones_initializer(), ev_option=option)
    np.testing.assert_array_equal(rows_of(table, [1]), [[3.0, 3.0]])
    assert "InitializerOption" in caplog.text


@pytest.mark.parametrize(("rows", "expected"), [(10000, 10000), (0, 4096)])
def test_initializers_that_scale_take_the_options_number_of_rows(graph, rows, expected):
    option = Option(init_option=sok.InitializerOption(v1.glorot_uniform_initializer, default_value_dim=rows))
    values = rows_of(sok.get_embedding_variable("x", 16, ev_option=option), np.arange(1000))
    limit = np.sqrt(6.0 / (expected + 16))
    assert 0.99 * limit < np.abs(values).max() <= limit


def test_filters_and_evictions_are_those_of_the_variable(graph, tmp_path):
    option = Option(
        filter_option=sok.CounterFilter(filter_freq=2),
        evict_option=sok.GlobalStepEvict(steps_to_live=1),
        init_option=sok.InitializerOption("ones", default_value_no_permission=0.5),
    )
    table = sok.get_embedding_variable("x", 1, ev_option=option)
    keys = v1.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(table, keys)
    step = v1.train.GradientDescentOptimizer(0.0).minimize(tf.reduce_sum(rows))
    with v1.Session() as session:
        harness.initialize(session)
        assert session.run(rows, {keys: [1, 2, 2]}).tolist() == [[0.5], [1], [1]]
        for _ in range(3):
            session.run(step, {keys: [7, 7]})
        assert session.run(table.size()) == 2
        v1.train.Saver().save(session, str(tmp_path / "model"))
        assert session.run(table.size()) == 1


def test_steps_to_live_is_a_global_step_evict(graph, caplog):
    def attribute(table):
        return table.initializer.get_attr("steps_to_live")

    assert attribute(sok.get_embedding_variable("a", 1, steps_to_live=5)) == 5
    evict = Option(evict_option=sok.GlobalStepEvict(9))
    assert attribute(sok.get_embedding_variable("b", 1, steps_to_live=5, ev_option=evict)) == 9
    assert "GlobalStepEvict" in caplog.text
    off = Option(evict_option=sok.L2WeightEvict())
    sok.get_embedding_variable("c", 1, steps_to_live=5, ev_option=off)
    both = Option(evict_option=sok.L2WeightEvict(0.5))
    with pytest.raises(ValueError, match="not both"):
        sok.get_embedding_variable("d", 1, steps_to_live=5, ev_option=both)


def test_collections(graph):
    hidden = sok.get_embedding_variable("hidden", 1, collections=["mine"], trainable=False)
    listed = sok.get_embedding_variable("listed", 1, collections=["mine", v1.GraphKeys.GLOBAL_VARIABLES])
    assert tf.compat.v1.get_collection("mine") == [hidden, listed]
    assert v1.global_variables() == [listed]
    assert v1.trainable_variables() == [listed]


def test_a_partitioner_makes_one_table(graph):
    table = sok.get_embedding_variable("x", 3, partitioner=v1.fixed_size_partitioner(num_shards=4))
    parts = list(table)
    assert len(table) == 1 and len(parts) == 1 and parts[0] is table
    counts = [part.total_count() for part in table]
    with v1.Session() as session:
        harness.initialize(session)
        session.run(tf.nn.embedding_lookup(table, tf.constant([1, 5], tf.int64)))
        assert session.run(counts)[0].tolist() == [2, 3]
    with v1.variable_scope("s", partitioner=v1.fixed_size_partitioner(2)):
        assert len(sok.get_embedding_variable("x", 3)) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"regularizer": tf.nn.l2_loss},
        {"custom_getter": lambda getter, *a, **k: getter(*a, **k)},
        {"constraint": tf.nn.relu},
        {"init_data_source": "file"},
    ],
)
def test_what_a_table_cannot_do_is_refused(graph, arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=rf"'x'\): {name} must be None"):
        sok.get_embedding_variable("x", 2, **arguments)


def test_a_scopes_regularizer_is_refused(graph):
    with v1.variable_scope("s", regularizer=tf.nn.l2_loss):
        with pytest.raises(ValueError, match="regularizer must be None"):
            sok.get_embedding_variable("x", 2)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": ""}, TypeError),
        ({"embedding_dim": 0}, ValueError),
        ({"embedding_dim": 2.5}, TypeError),
        ({"key_dtype": tf.string}, ValueError),
        ({"value_dtype": tf.float64}, ValueError),
        ({"ev_option": None}, TypeError),
        ({"initializer": [1.0, 2.0, 3.0]}, ValueError),
        ({"initializer": {1.0, 2.0}}, TypeError),
        ({"steps_to_live": -1}, ValueError),
    ],
)
def test_bad_arguments(graph, arguments, error):
    with pytest.raises(error, match="x|step|name"):
        sok.get_embedding_variable(**{"name": "x", "embedding_dim": 2, **arguments})
    assert not v1.global_variables()
    sok.get_embedding_variable("x", 2)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"ckpt": "model"}, ValueError),
        ({"storage_option": "ssd"}, TypeError),
        ({"init_option": None}, TypeError),
    ],
)
def test_bad_options(arguments, error):
    (name,) = arguments
    with pytest.raises(error, match=name):
        Option(**arguments)


def test_a_scope_of_another_device_is_ignored(graph):
    with tf.device("/GPU:0"):
        table = sok.get_embedding_variable("x", 2, initializer="ones")
    np.testing.assert_array_equal(rows_of(table, [1]), [[1.0, 1.0]])


@pytest.mark.parametrize(("kinds", "where"), [(["CPU"], "CPU"), (["CPU", "GPU"], "GPU")])
def test_tables_go_where_the_program_says_if_there_are_kernels(graph, monkeypatch, kinds, where):
    found = kernel_def_pb2.KernelList()
    for kind in kinds:
        found.kernel.add(op="SokTable", device_type=kind)
    monkeypatch.setattr(kernels, "get_registered_kernels_for_op", lambda name: found)
    with tf.device("/job:worker/task:1/GPU:0"):
        table = sok.get_embedding_variable("x", 2)
    device = tf.DeviceSpec.from_string(table.handle.device)
    assert (device.job, device.task, device.device_type) == ("worker", 1, where)


def test_eager_execution_is_refused():
    with context.eager_mode(), pytest.raises(RuntimeError, match="eager execution"):
        sok.get_embedding_variable("x", 2)
