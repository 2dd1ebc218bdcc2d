# Tags: versions
"""An embedding variable as a tf.Variable: collections, names, initialization, and unsupported operations."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import harness
import sparse_operation_kit as sok

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

KEYS = tf.compat.v1.GraphKeys


def names(variables):
    return [variable.name for variable in variables]


@pytest.mark.parametrize("trainable", [True, False])
def test_it_is_a_variable_in_the_collections(session, trainable):
    table = sok.EmbeddingVariable(name="table", dim=3, trainable=trainable)
    assert isinstance(table, tf.Variable)
    assert table.trainable == trainable
    (of_all,) = tf.compat.v1.global_variables()
    assert of_all is table
    assert [variable is table for variable in tf.compat.v1.trainable_variables()] == [True] * trainable


def test_attributes(session):
    table = sok.EmbeddingVariable(name="table", dim=3, capacity=10, key_dtype=tf.int32)
    assert (table.dim, table.capacity, table.key_dtype) == (3, 10, tf.int32)
    assert table.dtype == tf.float32
    assert table.shape.as_list() == [10, 3]
    assert sok.EmbeddingVariable(name="other", dim=3).shape.as_list() == [None, 3]
    assert table.name == "table:0"
    assert table.m_var_name == "table"


@pytest.mark.parametrize("options", [{}, {"use_hashtable": False, "capacity": 6}])
def test_rows_may_be_in_the_memory_of_the_host(options):
    rows = []
    for memory in ("device", "host"):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable("table", 3, **options, memory=memory)
            assert table.initializer.get_attr("memory") == memory.encode()
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2, 1]))
            step = tf.compat.v1.train.AdamOptimizer(0.1).minimize(loss)
            harness.initialize(session)
            session.run(step)
            rows.append(session.run(tf.nn.embedding_lookup(table, [1, 2, 3])))
    np.testing.assert_array_equal(*rows)


def test_memory_is_given_by_name_only():
    with tf.Graph().as_default(), pytest.raises(TypeError, match="positional"):
        sok.EmbeddingVariable(
            "t", 3, None, tf.int64, tf.float32, None, True, True, "error", None, None, "host"
        )


def test_initializer_makes_an_empty_table(session):
    table = sok.EmbeddingVariable(name="table", dim=3)
    assert not session.run(table.is_initialized())
    session.run(table.initializer)
    assert session.run(table.is_initialized())
    assert session.run(table.size()) == 0
    session.run(tf.nn.embedding_lookup(table, [1, 2, 1]))
    assert session.run(table.size()) == 2
    session.run(table.initializer)
    assert session.run(table.size()) == 0


def test_tensorflows_reports_of_initialization(session):
    table = sok.EmbeddingVariable(name="table", dim=3)
    plain = tf.Variable([1.0], name="plain")
    report = tf.compat.v1.report_uninitialized_variables()
    all_done = tf.compat.v1.is_variable_initialized(table)
    assert set(session.run(report)) == {b"table", b"plain"}
    assert not session.run(all_done)
    session.run(tf.compat.v1.variables_initializer([table]))
    assert list(session.run(report)) == [b"plain"]
    assert session.run(all_done)
    session.run(plain.initializer)
    assert session.run(report).size == 0


def test_names_are_unique(session):
    tables = [sok.EmbeddingVariable(name="table", dim=2) for _ in range(3)]
    assert len({table.m_var_name for table in tables}) == 3
    assert len(set(names(tables))) == 3
    rows = [tf.nn.embedding_lookup(table, [4]) for table in tables]
    harness.initialize(session)
    first, second, third = session.run(rows)
    assert not np.any(first == second) and not np.any(first == third)


def test_name_scopes_are_part_of_the_name(session):
    with tf.name_scope("user"):
        user = sok.EmbeddingVariable(name="table", dim=2)
    with tf.name_scope("item"):
        item = sok.EmbeddingVariable(name="table", dim=2)
    assert (user.m_var_name, item.m_var_name) == ("user/table", "item/table")
    assert names([user, item]) == ["user/table:0", "item/table:0"]
    harness.initialize(session)
    assert list(session.run([user.size(), item.size()])) == [0, 0]


def test_the_same_name_in_two_graphs_is_two_tables():
    sizes = []
    for keys in ([1], [1, 2, 3]):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable(name="table", dim=2)
            assert table.m_var_name == "table"
            rows = tf.nn.embedding_lookup(table, keys)
            harness.initialize(session)
            session.run(rows)
            sizes.append(session.run(table.size()))
    assert sizes == [1, 3]


@pytest.mark.parametrize(
    "read",
    [
        tf.convert_to_tensor,
        tf.reduce_sum,
        tf.identity,
        lambda table: table.read_value(),
        lambda table: tf.matmul(tf.ones([1, 2]), table, transpose_b=True),
    ],
)
def test_the_error_of_a_dense_read_tells_what_to_do(session, read):
    table = sok.EmbeddingVariable(name="hash_table", dim=2)
    harness.initialize(session)
    with session.as_default(), pytest.raises(TypeError, match="hash_table.*embedding_lookup"):
        read(table)


@pytest.mark.parametrize(
    "read", [tf.convert_to_tensor, lambda table: table + 1.0, lambda table: table.eval()]
)
def test_a_bounded_table_is_not_converted_to_a_tensor(session, read):
    table = sok.EmbeddingVariable(name="hash_table", dim=2, capacity=5)
    harness.initialize(session)
    with session.as_default(), pytest.raises(TypeError, match="hash_table.*read_value.*embedding_lookup"):
        read(table)


def test_read_value_of_a_bounded_table_is_by_row_number(session):
    table = sok.EmbeddingVariable(name="table", dim=2, capacity=5)
    rows = tf.nn.embedding_lookup(table, harness.HOSTILE_KEYS[:3])
    read = table.read_value()
    step = tf.compat.v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows))
    harness.initialize(session)
    np.testing.assert_array_equal(session.run(read), np.zeros([5, 2]))
    for _ in range(3):
        session.run(step)
    want = np.concatenate([harness.table_contents(session, table)[1], np.zeros([2, 2])])
    assert np.all(want[:3] != 0)
    np.testing.assert_array_equal(session.run(read), want)
    evicted = table.evict(harness.HOSTILE_KEYS[1:2])
    assert session.run(evicted) == 1
    want[1] = 0
    np.testing.assert_array_equal(session.run(read), want)


@pytest.mark.parametrize("key_dtype", [tf.int64, tf.int32, tf.uint32])
def test_export_gives_keys_and_rows(session, key_dtype):
    table = sok.EmbeddingVariable(name="table", dim=3, key_dtype=key_dtype)
    keys = [7, 0, key_dtype.max, key_dtype.min + 1]
    rows = tf.nn.embedding_lookup(table, tf.constant(keys, key_dtype))
    exported = table.keys_and_rows()
    assert [one.dtype for one in exported] == [key_dtype, tf.float32]
    assert [one.shape.as_list() for one in exported] == [[None], [None, 3]]
    harness.initialize(session)
    assert [one.shape for one in session.run(exported)] == [(0,), (0, 3)]
    want = session.run(rows)
    got_keys, got_rows = session.run(exported)
    assert got_keys.tolist() == keys
    np.testing.assert_array_equal(got_rows, want)


@pytest.mark.parametrize("read", [lambda table: table.read_value(), lambda table: table.keys_and_rows()[1]])
def test_rows_by_number_are_not_differentiated(session, read):
    table = sok.EmbeddingVariable(name="hash_table", dim=2, capacity=5)
    loss = tf.reduce_sum(read(table)) + tf.reduce_sum(tf.nn.embedding_lookup(table, [1]))
    with pytest.raises(TypeError, match="hash_table.*embedding_lookup"):
        tf.gradients(loss, table)
    rows = tf.stop_gradient(read(table))
    assert tf.gradients(tf.reduce_sum(rows * tf.nn.embedding_lookup(table, [1])), table)[0] is not None


def test_fetching_a_table_names_it(session):
    table = sok.EmbeddingVariable(name="hash_table", dim=2)
    harness.initialize(session)
    with pytest.raises(TypeError, match="hash_table"):
        session.run(table)


ROW = np.zeros([1, 2], np.float32)


@pytest.mark.parametrize("method", ["add", "div", "max", "min", "mul", "sub", "update"])
@pytest.mark.parametrize("options", [{}, {"capacity": 3, "use_hashtable": False}])
def test_tensorflows_scatter_functions_name_the_table(session, method, options):
    table = sok.EmbeddingVariable(name="hash_table", dim=2, **options)
    with pytest.raises(TypeError, match="hash_table.*assign_rows"):
        getattr(tf.compat.v1, f"scatter_{method}")(table, [0], ROW)
    if method in ("add", "sub", "update"):
        with pytest.raises(TypeError, match="hash_table.*assign_rows"):
            getattr(tf.compat.v1, f"scatter_nd_{method}")(table, [[0]], ROW)
    if method == "update":
        with pytest.raises(TypeError, match="hash_table.*assign_rows"):
            tf.compat.v1.batch_scatter_update(table, [0], ROW)


# What tf.Variable has: what works for every table, and what no table has, with arguments.
WORKS = {
    *"SaveSliceInfo __copy__ __eq__ __hash__ __ne__ __repr__ __str__ aggregation constraint create".split(),
    *"device dtype experimental_ref from_proto get_shape graph handle initializer is_initialized".split(),
    *"name op read_value ref set_shape shape sparse_read synchronization to_proto trainable".split(),
}
OPERATORS = [
    *"add and div floordiv ge gt le lt matmul mod mul or pow sub truediv xor".split(),
    *"radd rand rdiv rfloordiv rmatmul rmod rmul ror rpow rsub rtruediv rxor".split(),
]
REFUSED = {
    **{f"__{name}__": (1.0,) for name in OPERATORS},
    **{f"__{name}__": () for name in "abs array bool complex float int".split()},
    **{f"__{name}__": () for name in "invert iter long neg nonzero".split()},
    **{f"__i{name}__": (1.0,) for name in "add div mul pow realdiv sub truediv".split()},
    **{name: (ROW,) for name in ("assign", "assign_add", "assign_sub")},
    **{f"scatter_{name}": (ROW,) for name in "add div max min mul sub update".split()},
    **{f"scatter_nd_{name}": ([[0]], ROW) for name in "add max min sub update".split()},
    "__deepcopy__": ({},),
    "__getitem__": (0,),
    "batch_scatter_update": (ROW,),
    "count_up_to": (3,),
    "eval": (),
    "gather_nd": ([[0]],),
    "initial_value": (),
    "initialized_value": (),
    "load": (ROW,),
    "numpy": (),
    "read_value_no_copy": (),
    "value": (),
}
# Neither, as programs do not call them.
INTERNAL = {
    *"__abstractmethods__ __annotations__ __array_priority__ __getstate__ __reduce__".split(),
    "__tf_tracing_type__",
}


def attributes_of_variables():
    of_any_object = set(dir(type("Any", (), {}))) - WORKS
    names = {*dir(tf.Variable), *dir(sok.EmbeddingVariable.__mro__[1])} - of_any_object - INTERNAL
    return {name for name in names if name.startswith("__") or not name.startswith("_")}


def test_every_attribute_of_a_variable_is_known():
    assert attributes_of_variables() - {*WORKS, *REFUSED} == set()


@pytest.mark.parametrize("name", sorted(attributes_of_variables() & set(REFUSED)))
def test_what_a_table_lacks_is_an_error_that_names_it(name):
    with harness.graph_and_session() as session, session.as_default():
        table = sok.EmbeddingVariable(name="hash_table", dim=2, capacity=3)
        with pytest.raises(TypeError, match="hash_table.*embedding_lookup"):
            getattr(table, name)(*REFUSED[name])


@pytest.mark.parametrize("options", [{}, {"capacity": 3}, {"capacity": 3, "use_hashtable": False}])
def test_what_a_table_has_as_a_variable(session, options):
    table = sok.EmbeddingVariable(name="hash_table", dim=2, **options)
    assert (table == table) is True and (table != table) is False and table.constraint is None
    assert table.op is table.handle.op and table.graph is tf.compat.v1.get_default_graph()
    assert table.get_shape().as_list() == table.shape.as_list() == [options.get("capacity"), 2]
    rows = table.sparse_read([1, 2])
    session.run(table.initializer)
    assert session.run(rows).shape == (2, 2)


def test_a_strategy_with_replicas_is_refused():
    with tf.Graph().as_default(), tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        with pytest.raises(RuntimeError, match="hash_table.*MirroredStrategy.*horovodrun"):
            sok.EmbeddingVariable(name="hash_table", dim=2)


def test_a_strategy_with_one_device_is_allowed(session):
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        table = sok.EmbeddingVariable(name="table", dim=2)
    rows = tf.nn.embedding_lookup(table, [1])
    harness.initialize(session)
    assert session.run(rows).shape == (1, 2)


def test_tables_on_any_cpu_device(tmp_path):
    """A session may have several CPU devices, each with resources of its own."""
    keys = np.arange(6, dtype=np.int64)

    def train(device):
        config = harness.session_config()
        config.device_count["CPU"] = 3
        with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
            sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
            with tf.device(device):
                table = sok.EmbeddingVariable(name="table", dim=2)
            rows = tf.nn.embedding_lookup(table, keys)
            step = tf.compat.v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.sin(rows)))
            saver = tf.compat.v1.train.Saver()
            harness.initialize(session)
            session.run(step)
            prefix = saver.save(session, str(tmp_path / "model"))
            session.run(step)
            saver.restore(session, prefix)
            session.run(step)
            return table.handle.device, session.run(rows)

    (first, rows), (second, others) = train("/CPU:0"), train("/CPU:2")
    assert (first, second) == ("/device:CPU:0", "/device:CPU:2")
    np.testing.assert_array_equal(rows, others)


def test_without_hashing_all_rows_are_read_densely(session):
    table = sok.EmbeddingVariable(name="table", dim=2, capacity=5, use_hashtable=False)
    by_lookup = tf.nn.embedding_lookup(table, np.arange(5, dtype=np.int64))
    reads = [tf.convert_to_tensor(table), table.read_value(), table.value(), table + 0.0, table]
    harness.initialize(session)
    want = session.run(by_lookup)
    assert want.shape == (5, 2) and np.all(np.abs(want) <= 0.05) and np.unique(want).size == 10
    for got in session.run(reads):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(table.eval(session), want)
    assert session.run(table.size()) == 5


def test_gradients_are_indexed_slices(session):
    table = sok.EmbeddingVariable(name="table", dim=2)
    rows = tf.nn.embedding_lookup(table, [9, 8, 9])
    (gradient,) = tf.gradients(tf.reduce_sum(rows), table)
    ((from_optimizer, variable),) = tf.compat.v1.train.GradientDescentOptimizer(1.0).compute_gradients(
        tf.reduce_sum(rows)
    )
    assert variable is table
    assert isinstance(gradient, tf.IndexedSlices) and isinstance(from_optimizer, tf.IndexedSlices)
    assert gradient.values.shape.as_list() == [None, 2] and gradient.indices.dtype == tf.int64
    harness.initialize(session)
    dense = harness.gradient_by_key(session, table, from_optimizer, np.array([8, 9]))
    np.testing.assert_array_equal(dense, [[1, 1], [2, 2]])


def test_gradients_are_averaged_by_concatenating_them(session):
    table = sok.EmbeddingVariable(name="hash_table", dim=2, initializer=0.0)
    towers = [tf.nn.embedding_lookup(table, ids) for ids in ([9, 8, 9], [8, 7])]
    gradients = [tf.gradients(tf.reduce_sum(rows), table)[0] for rows in towers]
    values = tf.concat([one.values for one in gradients], 0) / len(gradients)
    average = tf.IndexedSlices(values, tf.concat([one.indices for one in gradients], 0))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    with pytest.raises(TypeError, match="hash_table.*IndexedSlices, not .*Tensor.*concatenate"):
        optimizer.apply_gradients([(tf.zeros([3, 2]), table)])
    step = optimizer.apply_gradients([(average, table)])
    rows = tf.nn.embedding_lookup(table, [9, 8, 7])
    harness.initialize(session)
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), [[-1, -1], [-1, -1], [-0.5, -0.5]])


def test_a_loss_without_a_lookup_has_no_gradient(session):
    table = sok.EmbeddingVariable(name="table", dim=2)
    assert tf.gradients(tf.constant(1.0), table) == [None]


def test_eager_execution_is_refused():
    with context.eager_mode(), pytest.raises(RuntimeError, match="table.*graph"):
        sok.EmbeddingVariable(name="table", dim=2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": 3}, TypeError, "name"),
        ({"name": ""}, (TypeError, ValueError), "name"),
        ({"name": "scope/"}, ValueError, "slash"),
        ({"name": "a b"}, ValueError, "a b"),
        ({"dim": 0}, ValueError, "at least 1, not 0"),
        ({"dim": -4}, ValueError, "-4"),
        ({"dim": 2**28 + 1}, ValueError, str(2**28 + 1)),
        ({"dim": 2**62}, ValueError, str(2**62)),
        ({"dim": 2.0}, TypeError, "dim must be an int"),
        ({"dim": "2"}, TypeError, "dim must be an int"),
        ({"dim": True}, TypeError, "dim must be an int"),
        ({"capacity": 0}, ValueError, "at least 1, not 0"),
        ({"capacity": -1}, ValueError, "-1"),
        ({"capacity": 2**63}, ValueError, str(2**63)),
        ({"capacity": 1.5}, TypeError, "capacity must be an int"),
        ({"capacity": 2**62}, ValueError, f"capacity {2**62} on each of 1 ranks"),
        ({"capacity": 2**60}, ValueError, f"capacity {2**60} .* rows of 2 floats"),
        ({"capacity": 2**60, "use_hashtable": False}, ValueError, f"capacity {2**60}"),
        ({"capacity": 2**40, "dim": 2**28}, ValueError, f"capacity {2**40}"),
        ({"key_dtype": tf.int16}, ValueError, "int16"),
        ({"key_dtype": tf.string}, ValueError, "string"),
        ({"key_dtype": "no such"}, (TypeError, ValueError), "no such"),
        ({"dtype": tf.float64}, ValueError, "float64"),
        ({"use_hashtable": False}, ValueError, "capacity"),
        ({"on_full": "evict"}, ValueError, "evict"),
        ({"memory": "disk"}, ValueError, "memory must be 'device', 'host' or a StorageOption, not 'disk'"),
        ({"memory": None}, ValueError, "not None"),
        ({"initializer": "no_such"}, ValueError, "no_such"),
        ({"initializer": float("nan")}, ValueError, "nan"),
        ({"initializer": 1e300}, ValueError, "finite in float32, not 1e.300"),
        ({"initializer": -3.5e38}, ValueError, "finite in float32, not -3.5e.38"),
        ({"initializer": 10**400}, ValueError, "finite in float32, not inf"),
        ({"initializer": tf.compat.v1.constant_initializer(1e39)}, ValueError, "not 1e.39"),
        ({"initializer": tf.compat.v1.random_uniform_initializer(-1e39, 1.0)}, ValueError, "not -1e.39"),
        ({"initializer": tf.compat.v1.random_uniform_initializer(0.0, np.nan)}, ValueError, "not nan"),
        ({"initializer": tf.compat.v1.random_normal_initializer(stddev=np.nan)}, ValueError, "not nan"),
        ({"initializer": tf.compat.v1.random_normal_initializer(np.inf)}, ValueError, "not inf"),
        ({"initializer": tf.compat.v1.random_normal_initializer(stddev=1e38)}, ValueError, "deviation 1e.38"),
        ({"initializer": tf.compat.v1.truncated_normal_initializer(3e38, 1e38)}, ValueError, "mean 3e.38"),
        (
            {"initializer": tf.compat.v1.variance_scaling_initializer(1e200), "capacity": 4},
            ValueError,
            "finite in float32",
        ),
        ({"initializer": {0.0, 1.0}}, TypeError, "initializer"),
    ],
)
def test_bad_arguments_name_the_variable_and_the_value(session, arguments, error, message):
    with pytest.raises(error, match=message) as raised:
        sok.EmbeddingVariable(**{"name": "bad_table", "dim": 2, **arguments})
    if "name" not in arguments:
        assert "bad_table" in str(raised.value)
    assert not tf.compat.v1.global_variables()


def test_ints_of_numpy_and_names_of_dtypes_will_do(session):
    table = sok.EmbeddingVariable(name="table", dim=np.int64(2), capacity=np.int32(4), key_dtype="int32")
    rows = tf.nn.embedding_lookup(table, tf.constant([1], tf.int32))
    harness.initialize(session)
    assert session.run(rows).shape == (1, 2)


def test_a_capacity_that_no_memory_holds_is_an_error_with_the_name(session):
    sok.EmbeddingVariable(name="vast_table", dim=2**20, capacity=2**36, use_hashtable=False)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="vast_table"):
        harness.initialize(session)


def test_initial_values_at_the_edge_of_float32_are_finite(session):
    tables = [
        sok.EmbeddingVariable(name="constant", dim=64, initializer=3.4e38),
        sok.EmbeddingVariable(
            name="uniform", dim=64, initializer=tf.compat.v1.random_uniform_initializer(-3.4e38, 3.4e38)
        ),
        sok.EmbeddingVariable(
            name="normal", dim=64, initializer=tf.compat.v1.random_normal_initializer(stddev=3.7e37)
        ),
    ]
    rows = [tf.nn.embedding_lookup(table, tf.range(1000, dtype=tf.int64)) for table in tables]
    harness.initialize(session)
    for values in session.run(rows):
        assert np.all(np.isfinite(values)) and np.max(np.abs(values)) > 1e38
