# Not on GPUs: graphs, names and libraries
"""The tensors between the tasks of a step on parameter servers: one for each group, server and direction."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import local_cluster
import sparse_operation_kit as sok
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1

FEATURES = 3
SERVERS = [f"ps:{server}" for server in range(local_cluster.SERVERS)]
MESSAGES = sorted(
    [("worker:0", server) for server in SERVERS for _ in ("ids", "gradients")]
    + [(server, "worker:0") for server in SERVERS]
)
# The global step is on the first server. It is increased when each server has told the worker of its updates.
UPDATED = [(server, "worker:0") for server in SERVERS] + [("worker:0", "ps:0")]


def _task(device):
    place = tf.DeviceSpec.from_string(device)
    return f"{place.job}:{place.task}"


def _edges(optimizer, eviction=None, variables=0):
    """The tasks that a tensor of a step is sent from and to, for each tensor.

    `variables` is the number of variables besides tables.
    """
    with local_cluster.graph_on(len(SERVERS)) as graph:
        sok.Init(global_batch_size=8)
        step = v1.train.get_or_create_global_step()
        ids = v1.placeholder(tf.int64, [FEATURES, 8])
        tables = [sok.EmbeddingVariable(f"table_{i}", 4, eviction=eviction) for i in range(FEATURES)]
        lookups = [group.DenseLookup(*pair) for pair in zip(tables, tf.unstack(ids))]
        loss = tf.reduce_sum(tf.square(tf.concat(group.lookup_group(lookups), axis=1)))
        weights = [v1.get_variable(f"weights_{i}", [], use_resource=True) for i in range(variables)]
        loss += tf.add_n([tf.square(one) for one in weights]) if weights else 0.0
        train = optimizer().minimize(loss, global_step=step)
    options = v1.RunOptions(output_partition_graphs=True)
    metadata = v1.RunMetadata()
    with local_cluster.started(graph) as session:
        feed = {ids: np.arange(FEATURES * 8).reshape(FEATURES, 8)}
        session.run([loss, train], feed, options=options, run_metadata=metadata)
    received = [
        (_task(node.attr["send_device"].s.decode()), _task(node.attr["recv_device"].s.decode()))
        for part in metadata.partition_graphs
        for node in part.node
        if node.op == "_Recv" and not node.attr["client_terminated"].b
    ]
    return sorted(edge for edge in received if edge[0] != edge[1])


@pytest.mark.parametrize("optimizer", [v1.train.GradientDescentOptimizer, v1.train.AdagradOptimizer])
def test_a_step_sends_its_messages_and_nothing_else(optimizer):
    assert _edges(lambda: optimizer(0.1)) == sorted(MESSAGES + UPDATED)


def test_a_server_tells_of_its_variables_and_tables_at_once():
    # The setter has put the global step on the first server, and the variables on the others.
    others = [edge for server in SERVERS[1:] for edge in ((server, "worker:0"), ("worker:0", server))]
    edges = _edges(lambda: v1.train.AdagradOptimizer(0.1), variables=len(SERVERS) - 1)
    assert edges == sorted(MESSAGES + UPDATED + others)


def test_hyper_parameters_of_all_tables_are_one_tensor_to_each_server():
    edges = _edges(lambda: v1.train.AdamOptimizer(0.1))
    powers = [("ps:0", "worker:0")] * 2  # Adam's powers are variables on the first server
    updated = [(server, "ps:0") for server in SERVERS[1:]]  # they advance after all updates
    hyper = [("worker:0", server) for server in SERVERS]
    assert edges == sorted(MESSAGES + updated + powers + hyper)


def test_the_global_step_is_sent_once_to_each_server():
    edges = _edges(lambda: v1.train.GradientDescentOptimizer(0.1), sok.GlobalStepEvict(9))
    steps = [("ps:0", server) for server in SERVERS[1:]]
    assert edges == sorted(MESSAGES + UPDATED + steps)
