"""Programs with parameter servers: a table is refused, because each worker would train one of its own."""

import json

import pytest
import tensorflow as tf

import sparse_operation_kit as sok
from sparse_operation_kit.feature_columns import categorical_column_with_embedding

v1 = tf.compat.v1

CLUSTER = {"ps": ["host0:1", "host1:1"], "chief": ["host2:1"], "worker": ["host3:1"]}


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def set_task(monkeypatch, kind, cluster=None):
    config = {"cluster": CLUSTER if cluster is None else cluster, "task": {"type": kind, "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def make_table(name="users"):
    return sok.get_embedding_variable(name, 4)


def refused(found):
    return pytest.raises(ValueError, match=rf"^Embedding variable '\S*users\S*': .*\({found}\).* as ranks")


@pytest.mark.parametrize(
    "arguments",
    [{"ps_tasks": 2}, {"cluster": CLUSTER}, {"ps_tasks": 2, "worker_device": "/job:worker/task:1"}],
)
def test_replica_device_setter_is_refused(arguments):
    with v1.device(v1.train.replica_device_setter(**arguments)), refused("the 2 of replica_device_setter"):
        make_table()


def test_every_way_to_a_table_is_refused():
    ids = tf.SparseTensor([[0, 0]], ["a"], [1, 1])
    with v1.device(v1.train.replica_device_setter(ps_tasks=1)), tf.device("/cpu:0"):
        with refused("the 1 of replica_device_setter"):
            sok.EmbeddingVariable("users", 4)
        with refused("the 1 of replica_device_setter"):
            column = categorical_column_with_embedding("users")
            v1.feature_column.input_layer({"users": ids}, [tf.feature_column.embedding_column(column, 4)])


def test_a_table_on_a_parameter_server_is_refused():
    with tf.device("/job:ps/task:1"), refused("/job:ps/task:1[^)]*"):
        make_table()


@pytest.mark.parametrize("kind", ["chief", "worker", "master", "ps"])
def test_a_cluster_of_tf_config_is_refused(monkeypatch, kind):
    set_task(monkeypatch, kind)
    with refused("the 2 of TF_CONFIG"):
        make_table()


def test_without_parameter_servers_a_table_trains():
    with v1.device(v1.train.replica_device_setter(ps_tasks=0)), tf.device("/job:localhost"):
        table = make_table()
        rows = tf.nn.embedding_lookup(table, tf.constant([3, 5], tf.int64))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(rows).shape == (2, 4)
        assert session.run(table.size()) == 2


def test_an_evaluator_and_clusters_of_workers_have_tables(monkeypatch):
    set_task(monkeypatch, "evaluator")
    make_table()
    set_task(monkeypatch, "worker", {"worker": ["host0:1", "host1:1"]})
    make_table("items")


@pytest.mark.parametrize(
    "config", ["", "{", "[]", '{"cluster": null}', '{"cluster": {"ps": []}}', '{"cluster": {"ps": 5}}']
)
def test_other_values_of_tf_config_have_tables(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    make_table()
