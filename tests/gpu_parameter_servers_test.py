# Not on GPUs: it always has the fake one
"""Tables on servers with GPUs, and workers with them: the numbers of CPUs. `fake_gpu_device` is the GPU."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import fake_gpu_device  # noqa: F401 - gives this process the device
import harness
import local_cluster
import sparse_operation_kit as sok
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1

CPU, GPU = "device:CPU:0", "device:GPU:0"
IDS = np.random.default_rng(1).integers(-20, 20, [6, 12])


def trained(server, worker, prefix, clips=False):
    """Outputs of steps, and rows by key, of tables on two servers and a worker; of one process without."""
    with local_cluster.graph_on(2 if server else 0, server_device=server, worker_device=worker) as graph:
        ids = v1.placeholder(tf.int64, [None])
        option = sok.EmbeddingVariableOption(filter_option=sok.CounterFilter(2))
        with tf.device(None if server else "/CPU:0"):
            tables = [
                sok.EmbeddingVariable("users", 4),
                sok.get_embedding_variable("items", 3, ev_option=option),
            ]
        bags = tf.RaggedTensor.from_row_splits(ids, [0, 3, 3, 12])
        outputs = group.lookup_group(
            [group.DenseLookup(tables[0], ids), group.RaggedLookup(tables[1], bags, "mean")]
        )
        if server:
            assert [part.device[-len(server) :] for part in tables[0]] == [server, server]
        optimizer = v1.train.AdagradOptimizer(0.5)
        losses = [tf.reduce_sum(output * output) for output in outputs]
        pairs = optimizer.compute_gradients(tf.add_n(losses), tables)
        if clips:
            pairs = [(tf.IndexedSlices(g.values * 0.5, g.indices, g.dense_shape), v) for g, v in pairs]
        train = optimizer.apply_gradients(pairs)
        contents, sizes = [table.keys_and_rows() for table in tables], [table.size() for table in tables]
        saver, initializer = v1.train.Saver(tables), v1.global_variables_initializer()
    with local_cluster.session(graph) as session:
        session.run(initializer)
        values = [session.run([*outputs, train], {ids: batch})[:2] for batch in IDS[:3]]
        saver.save(session, prefix)
        session.run(initializer)
        saver.restore(session, prefix)
        values += [session.run([*outputs, train], {ids: batch})[:2] for batch in IDS[3:]]
        rows = [dict(zip(*pair)) for pair in session.run(contents)]
        assert [len(one) for one in rows] == session.run(sizes)
    return values, rows


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize(("server", "worker"), [(CPU, GPU), (CPU, ""), (GPU, CPU), (GPU, GPU)])
def test_devices_of_servers_and_workers_change_no_numbers(server, worker, clips, tmp_path):
    expected = trained("", "", str(tmp_path / "one"), clips)
    actual = trained(server, worker, str(tmp_path / "many"), clips)
    for step, of_one in zip(actual[0], expected[0]):
        harness.assert_close_arrays(step, of_one, rtol=1e-5, atol=1e-6)
    for rows, others in zip(actual[1], expected[1]):
        assert rows.keys() == others.keys()
        harness.assert_close_arrays(rows.values(), map(others.get, rows), rtol=1e-5, atol=1e-6)
