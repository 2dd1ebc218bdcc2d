"""What DeepRec's tables offer: collections, storage options."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import deeprec

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
def test_the_collections_initialize_tables(initializers):
    with harness.graph_and_session() as session:
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
        np.testing.assert_array_equal(
            session.run(rows), [[0.0, 0.0] if initializers == "both" else [1.0, 1.0]]
        )


def test_the_tables_of_columns_are_in_the_collections():
    with harness.graph_and_session() as session:
        rows = column_table()
        table = v1.get_embedding_variable("table", 2)
        found = v1.get_collection(v1.GraphKeys.EMBEDDING_VARIABLES)
        assert len(found) == 2 and found[1] is table
        session.run(v1.get_collection(v1.GraphKeys.EV_INIT_VAR_OPS))
        assert session.run(rows).shape == (1, 2)


def test_a_meta_graph_has_the_collections_without_a_warning(tmp_path, caplog):
    with harness.graph_and_session() as session:
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


def test_storage_in_memory():
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
    with harness.graph_and_session() as session:
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
    "kind", [one for one in deeprec.StorageType if one.name not in ("DEFAULT", "DRAM", "HBM")]
)
def test_other_tiers_are_refused_by_name(kind):
    with pytest.raises(ValueError, match=rf"{kind.name} is not supported.*capacity="):
        v1.StorageOption(storage_type=kind, storage_path="/nowhere")


def test_device_memory_needs_a_gpu():
    if tf.config.list_physical_devices("GPU"):
        option = v1.StorageOption(storage_type=v1.StorageType.HBM)
        with tf.Graph().as_default():
            options = v1.EmbeddingVariableOption(storage_option=option)
            table = v1.get_embedding_variable("table", 2, ev_option=options)
            assert table.initializer.get_attr("memory") == b"device"
        return
    with pytest.raises(ValueError, match="HBM needs a GPU"):
        v1.StorageOption(storage_type=v1.StorageType.HBM)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"storage_type": "ssd"}, "storage_type must be a StorageType, not 'ssd'"),
        ({"storage_type": 12345}, "storage_type must be a StorageType, not 12345"),
        ({"storage_size": 1024}, "storage_size must be a list, not 1024"),
        ({"cache_strategy": 7}, "cache_strategy must be CacheStrategy.LRU or CacheStrategy.LFU, not 7"),
        ({"storage_path": "/tmp"}, "storage_path is '/tmp', which needs a storage_type"),
    ],
)
def test_bad_storage_options(arguments, message):
    with pytest.raises(ValueError, match=message):
        v1.StorageOption(**arguments)
