# Not on GPUs: graphs, names and libraries
"""Programs for parameter servers: partitioners, parts of a variable, sessions beside the cluster's."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

import local_cluster
import sparse_operation_kit as sok
import sparse_operation_kit.deeprec  # noqa: F401 - with DeepRec's lookups

v1 = tf.compat.v1

IDS = np.random.default_rng(5).integers(0, 60, 24)
SLICES = v1.fixed_size_partitioner(2)


def bags():
    return tf.SparseTensor([[i // 4, i % 4] for i in range(24)], tf.constant(IDS), [6, 4])


LOOKUPS = {
    "embedding_lookup": lambda params: tf.nn.embedding_lookup(params, tf.constant(IDS)),
    "embedding_lookup_sparse": lambda params: v1.nn.embedding_lookup_sparse(
        params, bags(), None, combiner="sqrtn"
    ),
    "safe_embedding_lookup_sparse": lambda params: v1.nn.safe_embedding_lookup_sparse(params, bags()),
    "group_embedding_lookup": lambda params: sok.group_embedding_lookup([params], [tf.constant(IDS)])[0],
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_lookup_in_the_list_of_all_parts_is_one_in_the_variable(name):
    with local_cluster.graph_on(2) as graph:
        table = sok.get_embedding_variable("users", 3, partitioner=SLICES)
        assert len(table) == len(list(table)) == 2
        rows, of_parts = LOOKUPS[name](table), LOOKUPS[name](list(table))
        train = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(of_parts)))
        sizes = [part.size() for part in table]
    with local_cluster.started(graph) as session:
        session.run(train)
        first, second = session.run([rows, of_parts])
        np.testing.assert_array_equal(first, second)
        of_servers = np.bincount(np.unique(IDS) % 2, minlength=2)
        assert session.run(sizes) == of_servers.tolist()


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize(
    "choose", [lambda one, two: one, lambda one, two: [one], lambda one, two: [two, one]], ids="a b c".split()
)
def test_other_uses_of_parts_name_the_variable(name, choose):
    with local_cluster.graph_on(2):
        table = sok.get_embedding_variable("users", 3, partitioner=SLICES)
        with pytest.raises(TypeError, match="'users' is in 2 parts.*'users/part_[01]' is one"):
            LOOKUPS[name](choose(*table))


def test_a_part_is_no_tensor():
    with local_cluster.graph_on(2):
        table = sok.get_embedding_variable("users", 3, partitioner=SLICES)
        with pytest.raises(TypeError, match="'users' is in 2 parts"):
            tf.add_n([tf.nn.l2_loss(part) for part in table])


def test_one_server_and_one_process_have_one_part():
    for servers in (0, 1):
        with local_cluster.graph_on(servers):
            table = sok.get_embedding_variable("users", 3, partitioner=SLICES)
            assert len(table) == 1
            assert tf.nn.embedding_lookup(list(table), tf.constant(IDS)).shape == (24, 3)


def test_a_program_of_the_zoo(tmp_path):
    """A partitioner of the scope cuts its dense variables; its tables are in as many parts as servers."""
    tf.config.experimental.enable_distributed_strategy(strategy="parameter_server")
    with local_cluster.graph_on(2) as graph:
        global_step = v1.train.get_or_create_global_step()
        partitioner = v1.min_max_variable_partitioner(max_partitions=2, min_slice_size=1)
        with v1.variable_scope("deep", partitioner=partitioner):
            column = tf.feature_column.categorical_column_with_embedding("user", tf.int64)
            columns = [tf.feature_column.embedding_column(column, 4)]
            inputs = v1.feature_column.input_layer({"user": tf.constant(IDS)}, columns)
            table = tf.get_embedding_variable("items", 4)
            inputs += tf.nn.embedding_lookup(table, tf.constant(IDS))
            bags_of_one = tf.sparse.from_dense(tf.constant(IDS + 1)[:, tf.newaxis])
            tables = [table, tf.get_embedding_variable("tags", 4)]
            inputs += tf.add_n(tf.nn.group_embedding_lookup_sparse(tables, [bags_of_one] * 2, ["mean"] * 2))
            loss = tf.reduce_mean(tf.square(v1.layers.dense(inputs, 2) - 1))
        train = v1.train.AdamAsyncOptimizer(0.01).minimize(loss, global_step=global_step)
        assert [len(one) for one in tables] == [2, 2]
        assert all(
            one.device.startswith("/job:ps") for one in v1.global_variables() if not hasattr(one, "handles")
        )
        hooks = [v1.train.StopAtStepHook(last_step=3)]
        with v1.train.MonitoredTrainingSession(
            graph._target, checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=1
        ) as session:
            while not session.should_stop():
                session.run(train)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("-3")


def set_task(monkeypatch, kind):
    cluster = {"ps": ["127.0.0.1:1", "127.0.0.1:2"], "chief": ["127.0.0.1:3"], "worker": ["127.0.0.1:4"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}}))


def rows_and_step():
    table = sok.get_embedding_variable("users", 3)
    rows = tf.nn.embedding_lookup(table, tf.constant(IDS))
    return rows, lambda: v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(rows)))


@pytest.mark.parametrize("kind", ["chief", "worker", "master", "ps"])
def test_a_task_reads_a_checkpoint_in_its_own_session_but_does_not_train_there(monkeypatch, kind, tmp_path):
    with local_cluster.graph_on(2) as graph:
        rows, step = rows_and_step()
        step, saver = step(), v1.train.Saver()
    with local_cluster.started(graph) as session:
        session.run(step)
        expected, path = session.run(rows), saver.save(session, str(tmp_path / "model"))
    set_task(monkeypatch, kind)
    with tf.Graph().as_default(), v1.Session() as session:
        rows, step = rows_and_step()
        v1.train.Saver().restore(session, path)
        np.testing.assert_array_equal(session.run(rows), expected)
        with pytest.raises(ValueError, match=r"'users'.*\(the 2 of TF_CONFIG\).*replica_device_setter"):
            step()
