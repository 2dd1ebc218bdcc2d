# Tags: versions, old_version
"""Tables in parts on parameter servers: the numbers of one process, and nothing of them on a worker."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

import local_cluster
import sparse_operation_kit as sok
from sparse_operation_kit.lookup import group
from sparse_operation_kit.optimizers.adagrad_decay import AdagradDecayOptimizer
from sparse_operation_kit.optimizers.adam_async import AdamAsyncOptimizer

v1 = tf.compat.v1

CLUSTER = {"ps": ["host0:1", "host1:1"], "chief": ["host2:1"], "worker": ["host3:1"]}
OPTIMIZERS = {
    "sgd": lambda step: v1.train.GradientDescentOptimizer(0.1),
    "adagrad": lambda step: v1.train.AdagradOptimizer(0.1),
    "adam": lambda step: v1.train.AdamOptimizer(0.1),
    "momentum": lambda step: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam_async": lambda step: AdamAsyncOptimizer(0.1),
    "adagrad_decay": lambda step: AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2),
}


class Model:
    """Lookups of all kinds in three tables, with constant ids, and a dense variable."""

    def __init__(self, optimizer="adagrad", clips=False, colocates=False):
        rng = np.random.default_rng(1)
        filtered = sok.EmbeddingVariableOption(filter_option=sok.CounterFilter(2))
        self.tables = [
            sok.EmbeddingVariable("users", 4),
            sok.get_embedding_variable("items", 6, ev_option=filtered),
            sok.EmbeddingVariable("tags", 4, capacity=40, on_full="evict_lru"),
        ]
        users, items, tags = self.tables
        bags = np.stack([np.sort(rng.integers(0, 10, 30)), np.zeros(30, np.int64)], axis=1)
        sparse = tf.SparseTensor(bags, rng.integers(-20, 20, 30), [10, 1])
        ragged = tf.RaggedTensor.from_row_lengths(tf.constant(rng.integers(0, 40, 30)), [3] * 10)
        weights = tf.constant(rng.random(30), tf.float32)
        self.outputs = group.lookup_group(
            [
                group.SparseLookup(users, sparse, "mean", weights),
                group.RaggedLookup(items, ragged, "sqrtn"),
                group.DenseLookup(tags, tf.constant(rng.integers(0, 20, [10, 2]))),
                group.SparseLookup(items, sparse, "sum", exchange="sums"),
            ]
        )
        # A second lookup in a table, whose gradient TensorFlow adds to the first one's.
        again = tf.nn.embedding_lookup(users, tf.constant([5, -3, 5, 99], tf.int64))
        self.dense = v1.get_variable("dense", [4], initializer=v1.ones_initializer())
        outputs = [*self.outputs, again * self.dense]
        self.loss = tf.add_n([tf.reduce_sum(tf.square(one - 0.5)) for one in outputs])
        self.step = v1.train.get_or_create_global_step()
        rule = OPTIMIZERS[optimizer](self.step)
        pairs = rule.compute_gradients(self.loss, colocate_gradients_with_ops=colocates)
        if clips:
            gradients, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 1.0)
            pairs = list(zip(gradients, [variable for _, variable in pairs]))
        self.train = rule.apply_gradients(pairs, global_step=self.step)
        self.weight_gradients = tf.gradients(self.loss, weights)[0]
        self._contents = [table.keys_and_rows() for table in self.tables]

    def contents(self, session):
        """The rows of each table by key."""
        return [dict(zip(*pair)) for pair in session.run(self._contents)]


def trained(servers, steps=3, **arguments):
    """Losses, gradients of weights and contents of tables after some steps."""
    with local_cluster.graph_on(servers) as graph:
        model = Model(**arguments)
        with local_cluster.started(graph) as session:
            values = []
            for _ in range(steps):
                values += session.run([model.loss, model.weight_gradients])
                session.run(model.train)
            return values, model.contents(session)


def assert_trains_as_one_process(servers, **arguments):
    of_one_process = trained(0, **arguments)
    local_cluster.assert_close(trained(servers, **arguments), of_one_process, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("servers", "optimizer"), [(1, "adagrad"), (2, "adam"), *((3, name) for name in sorted(OPTIMIZERS))]
)
def test_one_worker_has_the_numbers_of_one_process(servers, optimizer):
    assert_trains_as_one_process(servers, optimizer=optimizer)


@pytest.mark.parametrize("arguments", [{"clips": True}, {"colocates": True}], ids=["clipped", "colocated"])
def test_changed_gradients_are_sent_to_the_servers_of_their_rows(arguments):
    assert_trains_as_one_process(3, **arguments)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_everything_that_workers_share_is_on_servers(optimizer):
    with local_cluster.graph_on(2):
        model = Model(optimizer)
        for variable in v1.global_variables():
            if variable not in model.tables:
                assert variable.device.startswith("/job:ps/task:"), variable.name
    for table in model.tables:
        parts = list(table)
        assert [part.device for part in parts] == [f"/job:ps/task:{p}/device:CPU:0" for p in range(2)]
        assert [part.name for part in parts] == [f"{table.m_var_name}/part_{p}" for p in range(2)]


def test_key_k_is_on_the_part_of_its_number_modulo_the_servers():
    keys = np.array([0, 1, 2, 3, 4, 5, -1, -2, 2**63 - 1, -(2**63)], np.int64)
    with local_cluster.graph_on(3) as graph:
        table = sok.EmbeddingVariable("users", 2)
        rows = tf.nn.embedding_lookup(table, tf.constant(keys))
        sizes = [part.size() for part in table]
    with local_cluster.started(graph) as session:
        session.run(rows)
        expected = np.bincount((keys.astype(np.uint64) % np.uint64(3)).astype(int), minlength=3)
        assert session.run(sizes) == expected.tolist()
        assert session.run(table.size()) == len(keys)


def test_functions_of_a_table_are_those_of_all_its_parts():
    with local_cluster.graph_on(2) as graph:
        filtered = sok.EmbeddingVariableOption(filter_option=sok.CounterFilter(1))
        table = sok.get_embedding_variable("users", 2, steps_to_live=9, ev_option=filtered)
        dense = sok.EmbeddingVariable("dense", 2, capacity=3, use_hashtable=False, initializer=1.5)
        keys = tf.constant([4, 7, 9, 9], tf.int64)
        rows = tf.nn.embedding_lookup(table, keys)
        assigned = table.assign_rows([4, 7, 8], [[1, 2], [3, 4], [5, 6]])
        frequency, version = table.get_frequency(keys), table.get_version(keys)
        exported, evicted, ready = table.export(), table.evict([7, 8, 99]), table.is_initialized()
        shape = table.total_count()
    with local_cluster.started(graph) as session:
        assert session.run(ready)
        session.run(rows)
        assert session.run(assigned) == b"OK"
        np.testing.assert_array_equal(session.run(rows)[:2], [[1, 2], [3, 4]])
        np.testing.assert_array_equal(session.run(frequency), [2, 2, 4, 4])
        assert session.run(version).tolist() == [0, 0, 0, 0]
        found = session.run(exported)
        assert sorted(found.keys) == [4, 7, 8, 9]
        assert dict(zip(found.keys, found.freqs)) == {4: 2, 7: 2, 8: 0, 9: 4}
        np.testing.assert_array_equal(dict(zip(found.keys, found.values))[8], [5, 6])
        assert session.run(evicted) == 2
        assert session.run(shape).tolist() == [2, 2]
        # Without a hash table the keys are those of both parts.
        assert dense.shape.as_list() == [6, 2]
        np.testing.assert_array_equal(session.run(dense.read_value()), np.full([6, 2], 1.5))


def test_statistics_are_of_all_servers_and_workers():
    def statistics(servers, workers):
        """What each worker reads after a step of each, by table."""
        read = []
        for worker in range(workers):
            with local_cluster.graph_on(servers, worker) as graph:
                model, tensors = Model(), sok.table_statistics()
                initializer = v1.global_variables_initializer()
            session = local_cluster.session(graph)
            if worker == 0:
                session.run(initializer)
            session.run(model.train)
            read.append((session, tensors))
        found = [session.run(tensors) for session, tensors in read]
        return [{name: numbers._asdict() for name, numbers in one.items()} for one in found]

    (expected,), (of_servers,) = statistics(0, 1), statistics(3, 1)
    first, second = statistics(2, 2)
    assert first == second
    for name, numbers in expected.items():
        assert numbers["ids"] > numbers["distinct_ids"] > 0
        assert of_servers[name]["exchange_bytes"] > 0
        assert {**of_servers[name], "exchange_bytes": 0} == numbers
        assert first[name]["rows"] >= numbers["rows"]
        assert first[name]["ids"] == 2 * numbers["ids"]
        assert first[name]["distinct_ids"] == 2 * numbers["distinct_ids"]
        assert first[name]["unique_ratio"] == numbers["unique_ratio"]


def test_given_rows_and_seeds_are_those_of_one_process():
    def rows_on(servers):
        with local_cluster.graph_on(servers) as graph:
            sok.Init(global_batch_size=2, seed=11)
            given = np.arange(12, dtype=np.float32).reshape(3, 4).tolist()
            tables = [sok.EmbeddingVariable("drawn", 4), sok.EmbeddingVariable("given", 4, initializer=given)]
            rows = [tf.nn.embedding_lookup(table, tf.range(9, dtype=tf.int64)) for table in tables]
        with local_cluster.started(graph) as session:
            return session.run(rows)

    sok.ranks.initialize._reset()
    try:
        for rows, expected in zip(rows_on(2), rows_on(0)):
            np.testing.assert_array_equal(rows, expected)
    finally:
        sok.ranks.initialize._reset()


def test_gradients_are_sent_in_16_bits_if_init_says_so_before_or_after_the_model():
    def row_of(dtype, late):
        sok.ranks.initialize._reset()
        with local_cluster.graph_on(2) as graph:
            if not late:
                sok.Init(global_batch_size=2, gradient_exchange_dtype=dtype)
            table = sok.EmbeddingVariable("users", 1, initializer=0.0)
            row = tf.nn.embedding_lookup(table, tf.constant([3], tf.int64))
            # 1 + 2^-12 has no bfloat16.
            train = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(row) * (1 + 2.0**-12))
            if late:
                sok.Init(global_batch_size=2, gradient_exchange_dtype=dtype)
        with local_cluster.started(graph) as session:
            session.run(train)
            return float(session.run(row)[0, 0])

    try:
        assert row_of(tf.float32, False) == -(1 + 2.0**-12)
        for late in (False, True):
            assert row_of(tf.bfloat16, late) == -1.0
    finally:
        sok.ranks.initialize._reset()


def test_workers_train_the_same_rows_and_their_counts_add_up():
    class Worker:
        def __init__(self, number):
            with local_cluster.graph_on(2, number) as graph:
                option = sok.EmbeddingVariableOption(filter_option=sok.CounterFilter(2))
                tables = [
                    sok.EmbeddingVariable("users", 1, initializer=0.0),
                    sok.get_embedding_variable("items", 1, ev_option=option, initializer=1.0),
                ]
                ids = [tf.constant([1, 2, 10 + number], tf.int64), tf.constant([7], tf.int64)]
                rows = [tf.nn.embedding_lookup(table, keys) for table, keys in zip(tables, ids)]
                self.train = v1.train.GradientDescentOptimizer(1.0).minimize(
                    tf.add_n([tf.reduce_sum(row) for row in rows])
                )
                self.initializer = v1.global_variables_initializer()
                self.missing = v1.report_uninitialized_variables()
                self.rows = group.lookup_group(
                    [group.DenseLookup(tables[0], tf.constant([1, 2, 10, 11], tf.int64))], training=False
                )[0]
                self.counted = group.lookup_group([group.DenseLookup(tables[1], ids[1])], training=False)[0]
            self.session = local_cluster.session(graph)

    chief, worker = Worker(0), Worker(1)
    chief.session.run(chief.initializer)
    assert worker.session.run(worker.missing).size == 0, "the worker finds what the chief has made"
    chief.session.run(chief.train)
    assert chief.session.run(chief.counted) == 0, "seen once"
    for _ in range(2):
        worker.session.run(worker.train)
    for one in (chief, worker):
        np.testing.assert_array_equal(one.session.run(one.rows)[:, 0], [-3, -3, -1, -2])
    # The second worker's first lookup admits the id, whose row both of its steps train.
    assert worker.session.run(worker.counted) == -1
    # A worker that dies between its lookup and its gradient leaves no lock.
    chief.session.run(chief.rows)
    chief.session.close()
    worker.session.run(worker.train)
    np.testing.assert_array_equal(worker.session.run(worker.rows)[:, 0], [-4, -4, -1, -3])


def test_a_workers_older_global_step_never_sets_a_newer_one_back(tmp_path):
    class Worker:
        def __init__(self, number):
            with local_cluster.graph_on(2, number) as graph:
                self.ids, self.seen = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.int64, [])
                table = sok.get_embedding_variable("users", 1, steps_to_live=10)
                # What the worker read before others increased it.
                self.see = v1.assign(v1.train.get_or_create_global_step(), self.seen)
                rows = tf.nn.embedding_lookup(table, self.ids)
                self.train = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
                self.versions = table.get_version(tf.range(8, dtype=tf.int64))
                self.saver, self.initializer = v1.train.Saver(), v1.global_variables_initializer()
            self.session = local_cluster.session(graph)

        def push(self, ids, seen):
            self.session.run(self.see, {self.seen: seen})
            self.session.run(self.train, {self.ids: ids})

        def save(self, seen):
            """Saves, which evicts, and returns the steps of rows."""
            self.session.run(self.see, {self.seen: seen})
            with self.session.graph.as_default():
                self.saver.save(self.session, str(tmp_path / "model.ckpt"))
            return self.session.run(self.versions).tolist()

    chief, worker = Worker(0), Worker(1)
    chief.session.run(chief.initializer)
    chief.push([0, 1, 2, 3], 50)
    worker.push([2, 3, 4, 5], 45)
    assert worker.session.run(worker.versions).tolist() == [50] * 6 + [-1] * 2
    chief.push([0, 1, 6, 7], 58)
    assert worker.save(45) == [58] * 2 + [50] * 4 + [58] * 2
    # Rows of step 50 are 11 steps old at step 61, which the worker has not seen.
    chief.push([0, 1], 61)
    assert worker.save(47) == [61] * 2 + [-1] * 4 + [58] * 2


def test_an_error_is_the_workers_own_and_names_the_variable():
    with local_cluster.graph_on(2) as graph:
        table = sok.EmbeddingVariable("bounded", 2, capacity=2)
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
    with local_cluster.session(graph) as session:
        # After this error a MonitoredTrainingSession makes its session again, and waits for the chief.
        with pytest.raises(tf.errors.AbortedError, match="'bounded'.*(sok.Init|not initialized)"):
            session.run(rows, {ids: [1]})
    with local_cluster.started(graph) as session:
        with pytest.raises(tf.errors.ResourceExhaustedError, match=r"rank 1.*'bounded' is full"):
            session.run(rows, {ids: [1, 3, 5]})
        assert session.run(table.size()) == 0
        assert session.run(rows, {ids: [1, 3]}).shape == (2, 2)


def test_tables_of_other_servers_are_not_in_one_group():
    with tf.Graph().as_default():
        tables = []
        for servers in (1, 2):
            with local_cluster.scope(servers):
                tables.append(sok.EmbeddingVariable(f"of{servers}", 2))
        lookups = [group.DenseLookup(table, tf.constant([1], tf.int64)) for table in tables]
        with pytest.raises(ValueError, match="'of1' and 'of2' cannot be looked up in one group: their parts"):
            group.lookup_group(lookups)


def set_task(monkeypatch, kind, cluster=None):
    config = {"cluster": CLUSTER if cluster is None else cluster, "task": {"type": kind, "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def devices_of(table):
    return [part.device for part in table]


def test_a_device_of_a_server_means_all_servers(monkeypatch):
    both = [f"/job:ps/task:{task}/device:CPU:0" for task in (0, 1)]
    with local_cluster.graph_on(2), tf.device("/job:ps/task:1"):
        table = sok.EmbeddingVariable("users", 2)
    assert devices_of(table) == both
    assert table.handle.device.startswith("/job:worker/task:0")
    with tf.Graph().as_default(), tf.device("/job:ps/task:1"):
        with pytest.raises(ValueError, match=r"'users'.*\(/job:ps/task:1[^)]*\).*replica_device_setter"):
            sok.EmbeddingVariable("users", 2)
        set_task(monkeypatch, "worker")
        assert devices_of(sok.EmbeddingVariable("users", 2)) == both


def test_an_evaluator_and_clusters_of_workers_have_tables_of_their_own(monkeypatch):
    with tf.Graph().as_default():
        set_task(monkeypatch, "evaluator")
        sok.EmbeddingVariable("users", 2)
        with v1.device("/job:ps/task:1"), pytest.raises(ValueError, match="'clicks'"):
            sok.EmbeddingVariable("clicks", 2)  # It has no part in the cluster, so no servers.
        set_task(monkeypatch, "worker", {"worker": ["host0:1", "host1:1"]})
        table = sok.EmbeddingVariable("items", 2)
        with v1.device(v1.train.replica_device_setter(ps_tasks=0)):
            sok.EmbeddingVariable("tags", 2)
        assert not table.servers.devices


@pytest.mark.parametrize(
    "config", ["", "{", "[]", '{"cluster": null}', '{"cluster": {"ps": []}}', '{"cluster": {"ps": 5}}']
)
def test_a_malformed_config_is_tensorflows_to_report(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    with tf.Graph().as_default():
        sok.EmbeddingVariable("users", 2)


def test_what_servers_do_not_have_is_refused_by_name():
    with local_cluster.graph_on(2):
        with pytest.raises(ValueError, match="'replicated'.*cannot be on parameter servers"):

            class Replicated(sok.EmbeddingVariable):
                _placement = "on_all_ranks"

            Replicated("replicated", 2)


def test_a_parameter_server_strategy_is_refused_with_what_to_use(monkeypatch):
    set_task(monkeypatch, "worker")
    strategy = v1.distribute.experimental.ParameterServerStrategy()
    with tf.Graph().as_default(), strategy.scope():
        with pytest.raises(RuntimeError, match="'users'.*ParameterServerStrategy.*replica_device_setter"):
            sok.EmbeddingVariable("users", 2)


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
