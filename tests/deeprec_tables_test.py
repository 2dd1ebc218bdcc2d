"""DeepRec's collections and storage options, statistics, inference mode and AdamW."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import deeprec
from sparse_operation_kit.lookup import group

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def installed():
    deeprec.install()


def column_table():
    """Makes the table of a feature column."""
    column = v1.feature_column.categorical_column_with_embedding("item", dtype=tf.int64)
    features = {"item": tf.constant([[3]], tf.int64)}
    return v1.feature_column.input_layer(features, [v1.feature_column.embedding_column(column, 2)])


@pytest.mark.parametrize("initializers", ["collections", "both", "both reversed"])
def test_the_collections_initialize_tables(session, initializers):
    table = v1.get_embedding_variable("table", 2, initializer=tf.ones_initializer())
    rows = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64))
    step = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
    made = [
        v1.get_collection(v1.GraphKeys.EV_INIT_VAR_OPS),
        v1.get_collection(v1.GraphKeys.EV_INIT_SLOT_OPS),
    ]
    assert (len(made[0]), len(made[1])) == (1, 0)
    if initializers == "both":
        harness.initialize(session)
        session.run(step)
    session.run(made[0])
    session.run(made[1])
    if initializers == "both reversed":
        harness.initialize(session)
    # The collection's op leaves a table that exists as it is.
    np.testing.assert_array_equal(session.run(rows), [[0.0, 0.0] if initializers == "both" else [1.0, 1.0]])


def test_the_tables_of_columns_are_in_the_collections(session):
    rows = column_table()
    table = v1.get_embedding_variable("table", 2)
    found = v1.get_collection(v1.GraphKeys.EMBEDDING_VARIABLES)
    assert len(found) == 2 and found[1] is table
    session.run(v1.get_collection(v1.GraphKeys.EV_INIT_VAR_OPS))
    assert session.run(rows).shape == (1, 2)


def test_a_meta_graph_has_the_collections_without_a_warning(session, tmp_path, caplog):
    v1.get_embedding_variable("table", 2)
    harness.initialize(session)
    v1.train.Saver().save(session, str(tmp_path / "model"))
    meta = v1.train.export_meta_graph()
    assert "serializing" not in caplog.text
    assert list(meta.collection_def["ev_init_var_ops"].node_list.value)


def test_other_tables_are_in_no_collection_of_deeprec():
    with tf.Graph().as_default():
        sok.EmbeddingVariable("table", 2)
        assert not v1.get_collection(v1.GraphKeys.EMBEDDING_VARIABLES)


def test_storage_in_memory(session):
    from tensorflow.core.framework.embedding import config_pb2

    assert config_pb2.StorageType is v1.StorageType and v1.CacheStrategy is config_pb2.CacheStrategy
    option = v1.EmbeddingVariableOption(
        storage_option=v1.StorageOption(
            storage_type=config_pb2.StorageType.DRAM,
            storage_path="/nowhere",
            storage_size=[1024**3, 1024**3],
            cache_strategy=config_pb2.CacheStrategy.LRU,
        )
    )
    table = v1.get_embedding_variable("table", 2, initializer=tf.ones_initializer(), ev_option=option)
    assert table.initializer.get_attr("memory") == b"host"
    column = v1.feature_column.categorical_column_with_embedding("item", tf.int64, ev_option=option)
    features = {"item": tf.constant([[3]], tf.int64)}
    of_column = v1.feature_column.input_layer(features, [v1.feature_column.embedding_column(column, 2)])
    made = v1.get_collection(v1.GraphKeys.EMBEDDING_VARIABLES)
    assert [one.initializer.get_attr("memory") for one in made] == [b"host", b"host"]
    harness.initialize(session)
    rows = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64))
    np.testing.assert_array_equal(session.run(rows), [[1.0, 1.0]])
    assert session.run(of_column).shape == (1, 2)


@pytest.mark.parametrize("kind", [None, "DEFAULT"])
def test_storage_of_the_device(kind):
    option = v1.StorageOption(storage_type=None if kind is None else v1.StorageType[kind])
    with tf.Graph().as_default():
        table = v1.get_embedding_variable("t", 2, ev_option=v1.EmbeddingVariableOption(storage_option=option))
        assert table.initializer.get_attr("memory") == b"device"


@pytest.mark.parametrize(
    "kind",
    [
        one
        for one in deeprec.StorageType
        if one.name not in ("DEFAULT", "DRAM", "DRAM_SSDHASH", "HBM", "HBM_DRAM", "HBM_DRAM_SSDHASH")
    ],
)
def test_other_tiers_are_refused_by_name(kind):
    with pytest.raises(ValueError, match=rf"{kind.name} is not supported.*capacity="):
        v1.StorageOption(storage_type=kind, storage_path="/nowhere")


@pytest.mark.parametrize(
    "kind", [v1.StorageType.HBM, v1.StorageType.HBM_DRAM, v1.StorageType.HBM_DRAM_SSDHASH]
)
def test_device_memory_needs_a_gpu(kind):
    if tf.config.experimental.list_physical_devices("GPU"):
        option = v1.StorageOption(storage_type=kind, storage_path="/tmp", storage_size=[64, 64])
        with tf.Graph().as_default():
            options = v1.EmbeddingVariableOption(storage_option=option)
            table = v1.get_embedding_variable("table", 2, ev_option=options)
            assert table.initializer.get_attr("memory") == b"device"
        return
    with pytest.raises(ValueError, match=f"{kind.name} needs a GPU"):
        v1.StorageOption(storage_type=kind)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"storage_type": "ssd"}, "storage_type must be a StorageType, not 'ssd'"),
        ({"storage_type": 12345}, "storage_type must be a StorageType, not 12345"),
        ({"storage_size": 1024}, "storage_size must be a list, not 1024"),
        ({"cache_strategy": 7}, "cache_strategy must be CacheStrategy.LRU or CacheStrategy.LFU, not 7"),
        ({"storage_path": "/tmp"}, "storage_path is '/tmp', which needs a storage_type"),
        ({"storage_type": v1.StorageType.DRAM_SSDHASH}, "needs a folder as storage_path, not None"),
        (
            {"storage_type": v1.StorageType.DRAM_SSDHASH, "storage_path": "/tmp", "storage_size": []},
            r"the bytes of memory as the first number of storage_size, not \[\]",
        ),
        (
            {"storage_type": v1.StorageType.DRAM_SSDHASH, "storage_path": "/tmp", "storage_size": [0]},
            r"the bytes of memory as the first number of storage_size, not \[0\]",
        ),
    ],
)
def test_bad_storage_options(arguments, message):
    with pytest.raises(ValueError, match=message):
        v1.StorageOption(**arguments)


def counted(**options):
    """A table that counts occurrences and keeps steps, and the train op of a lookup of fed ids."""
    ids = v1.placeholder(tf.int64, [None])
    option = v1.EmbeddingVariableOption(
        filter_option=v1.CounterFilter(2), evict_option=v1.GlobalStepEvict(1000), **options
    )
    table = v1.get_embedding_variable("table", 2, initializer=tf.ones_initializer(), ev_option=option)
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
    step = v1.train.get_or_create_global_step()
    train = v1.train.GradientDescentOptimizer(1.0).minimize(loss, global_step=step)
    return table, ids, train


def test_frequencies_versions_and_export(session):
    batches = [[1, 1, -5], [7], [2**40, -5, 1], [1, -(2**63), 2**40]]
    table, ids, train = counted()
    asked = v1.placeholder(tf.int64, [None, None])
    frequency, version = table.get_frequency(asked), table.get_version(asked)
    exported, shape = table.export(), table.get_dynamic_shape()
    harness.initialize(session)
    assert [part.shape[0] for part in session.run(exported)] == [0, 0, 0, 0]
    np.testing.assert_array_equal(session.run(frequency, {asked: [[1, 2]]}), [[0, 0]])
    counts, rows, last = {}, {}, {}
    for number, batch in enumerate(batches):  # number is the global step that the update reads
        session.run(train, {ids: batch})
        for key in batch:
            counts[key] = counts.get(key, 0) + 1
        for key in set(batch):
            if counts[key] >= 2:
                rows[key] = rows.get(key, np.ones(2)) - batch.count(key)
                last[key] = number
    keys = [[1, -5, 7, 3], [2**40, -(2**63), 2**63 - 1, 0]]
    found = session.run([frequency, version], {asked: keys})
    np.testing.assert_array_equal(found[0], [[counts.get(key, 0) for key in row] for row in keys])
    in_table = np.array([[key in rows for key in row] for row in keys])
    np.testing.assert_array_equal(
        found[1][in_table], [last[key] for row in keys for key in row if key in rows]
    )
    # 7 and -2^63 wait, since batches 1 and 3: the step before. 3, 2^63 - 1 and 0 are unknown.
    np.testing.assert_array_equal(found[1][~in_table], [0, -1, 2, -1, -1])
    part = session.run(exported)
    assert sorted(part.keys) == sorted(rows)
    for key, row, at, count in zip(*part):
        np.testing.assert_array_equal(row, rows[key])
        assert (at, count) == (last[key], counts[key])
    np.testing.assert_array_equal(session.run(shape), [len(rows), 2])


@pytest.mark.parametrize("kind", ["", "CounterFilter", "CBFFilter"])
def test_frequencies_and_versions_of_tables_that_filter_and_evict_nothing(kind, tmp_path, monkeypatch):
    """A filter_freq of 0 disables the filter, as DeepRec documents: occurrences are counted only."""
    if not kind:
        monkeypatch.setenv("TF_RECORD_FREQ", "1")
        monkeypatch.setenv("TF_RECORD_VERSION", "1")
    with harness.graph_and_session() as session:
        option = v1.EmbeddingVariableOption(
            filter_option=getattr(v1, kind)() if kind else None,
            init_option=v1.InitializerOption(default_value_no_permission=9.0),
        )
        table = v1.get_embedding_variable("table", 1, initializer=tf.ones_initializer(), ev_option=option)
        ids = v1.placeholder(tf.int64, [None])
        (read,) = group.lookup_group(
            [group.DenseLookup(table, tf.constant([4, 5, 6], tf.int64))], training=False
        )
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
        train = v1.train.GradientDescentOptimizer(1.0).minimize(loss, global_step=step)
        asked = [table.get_frequency(tf.constant([4, 5, 6], tf.int64))]
        if kind:
            with pytest.raises(ValueError, match="does not keep the steps"):
                table.get_version([4])
        else:
            asked.append(table.get_version(tf.constant([4, 5, 6], tf.int64)))
        saver = v1.train.Saver()
        harness.initialize(session)
        assert session.run(read)[:, 0].tolist() == [1.0, 1.0, 1.0]
        session.run(train, {ids: [4, 4, 5]})
        session.run(train, {ids: [5]})
        for _ in range(2):
            assert session.run(read)[:, 0].tolist() == [-1.0, -1.0, 1.0]
            np.testing.assert_array_equal(session.run(asked), [[2, 2, 0], [0, 1, -1]][: len(asked)])
            saver.save(session, str(tmp_path / "model"))  # evicts nothing
            saver.restore(session, str(tmp_path / "model"))


def test_nothing_is_recorded_in_a_program_for_sok(monkeypatch):
    monkeypatch.setenv("TF_RECORD_FREQ", "1")
    deeprec.uninstall()
    with tf.Graph().as_default():
        table = sok.get_embedding_variable("table", 2)
        with pytest.raises(ValueError, match="keeps no frequencies"):
            table.get_frequency([1])


def test_narrow_ids_are_widened_and_others_refused(session):
    table, ids, train = counted()
    of_three = table.get_frequency(3)
    with pytest.raises(TypeError, match="'table' has int64 keys, and these ids are float32"):
        table.get_frequency(tf.constant([1.0]))
    harness.initialize(session)
    session.run(train, {ids: [3, 3, 3, 4]})
    assert session.run(of_three) == 3


def test_a_table_that_keeps_no_statistics(session):
    table = v1.get_embedding_variable("table", 2, initializer=tf.ones_initializer())
    rows = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64))
    with pytest.raises(ValueError, match="'table' keeps no frequencies: a CounterFilter"):
        table.get_frequency(tf.constant([5], tf.int64))
    with pytest.raises(ValueError, match="'table' does not keep the steps.*GlobalStepEvict"):
        table.get_version(tf.constant([5], tf.int64))
    exported = table.export()
    with pytest.raises(TypeError, match="cannot be differentiated"):
        tf.gradients(exported.values, table)
    harness.initialize(session)
    session.run(rows)
    keys, values, versions, freqs = session.run(exported)
    np.testing.assert_array_equal(keys, [5])
    np.testing.assert_array_equal(values, [[1.0, 1.0]])
    assert (len(versions), len(freqs)) == (0, 0)


def test_a_full_table_that_evicts_the_least_frequent_counts_too(session):
    table = sok.EmbeddingVariable("table", 2, capacity=4, on_full="evict_lfu")
    rows = tf.nn.embedding_lookup(table, tf.constant([5, 5, 6], tf.int64))
    frequency = table.get_frequency([5, 6, 7])
    harness.initialize(session)
    session.run(rows)
    np.testing.assert_array_equal(session.run(frequency), [2, 1, 0])


@pytest.mark.parametrize("value, inserts", [("1", False), ("true", False), ("0", True), ("", True)])
def test_inference_mode_inserts_nothing(monkeypatch, value, inserts):
    monkeypatch.setenv("INFERENCE_MODE", value)
    with harness.graph_and_session() as session:
        table = v1.get_embedding_variable("table", 2, initializer=tf.ones_initializer())
        rows = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64))
        size = table.size()
        harness.initialize(session)
        np.testing.assert_array_equal(session.run(rows), [[1.0, 1.0]])
        assert session.run(size) == int(inserts)


def test_inference_mode_is_deeprecs(monkeypatch):
    monkeypatch.setenv("INFERENCE_MODE", "1")
    deeprec.uninstall()
    try:
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable("table", 2)
            rows, size = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64)), table.size()
            harness.initialize(session)
            session.run(rows)
            assert session.run(size) == 1
    finally:
        deeprec.install()


@pytest.mark.parametrize("call", ["minimize", "apply_gradients"])
def test_adamw_decays_the_variables_of_a_list(call):
    """Compared with the same optimizer without decay, and with decay for all variables."""

    def trained(decaying):
        with harness.graph_and_session() as session:
            tables = [v1.get_embedding_variable(name, 2, initializer=tf.ones_initializer()) for name in "ab"]
            ordinary = [v1.get_variable(name, initializer=[1.0, 2.0]) for name in "cd"]
            variables = [*tables, *ordinary]
            rows = [tf.nn.embedding_lookup(table, tf.constant([5, 5, 6], tf.int64)) for table in tables]
            loss = tf.add_n([tf.reduce_sum(tf.sin(one)) for one in [*rows, *ordinary]])
            rate = 0.0 if decaying == "none" else 0.1
            optimizer = v1.train.AdamWOptimizer(rate, 0.01)
            chosen = {"all": None, "none": None}.get(decaying, [variables[0], variables[2]])
            if call == "minimize":
                step = optimizer.minimize(loss, decay_var_list=chosen)
            else:
                step = optimizer.apply_gradients(optimizer.compute_gradients(loss), decay_var_list=chosen)
            harness.initialize(session)
            for _ in range(3):
                session.run(step)
            return session.run([*rows, *ordinary])

    everything, nothing, some = trained("all"), trained("none"), trained("some")
    for index, got in enumerate(some):
        np.testing.assert_array_equal(got, (everything if index in (0, 2) else nothing)[index])
        assert not np.array_equal(everything[index], nothing[index])
