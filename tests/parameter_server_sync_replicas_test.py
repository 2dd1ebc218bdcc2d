"""SyncReplicasOptimizer refuses tables, on servers and in one process."""

import pytest
import tensorflow as tf

import local_cluster
import sparse_operation_kit as sok

v1 = tf.compat.v1


@pytest.mark.parametrize("servers", [0, 2])
def test_synchronous_replicas_refuse_tables(servers):
    with local_cluster.graph_on(servers):
        table = sok.EmbeddingVariable("users", 2)
        weight = v1.get_variable("weight", [2])
        rows = tf.nn.embedding_lookup(table, tf.constant([3, 4], tf.int64))
        step = v1.train.get_or_create_global_step()
        for inner in (v1.train.AdagradOptimizer(0.1), v1.train.AdamOptimizer(0.1)):
            optimizer = v1.train.SyncReplicasOptimizer(inner, 2)
            with pytest.raises(ValueError, match="SyncReplicasOptimizer cannot train .* 'users'"):
                optimizer.minimize(tf.reduce_sum(rows * weight), step)
            # Ordinary variables alone train.
            optimizer.apply_gradients([(tf.ones([2]), weight)], step)
