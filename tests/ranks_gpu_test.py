# Tags: slow
# Not on GPUs: it always has the fake one
"""Tables on GPUs over ranks: results have the bits of CPUs, and words leave the device only to be sent."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import fake_gpu_device
import harness
import ranks
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import native
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
CPU, GPU = "/CPU:0", "/GPU:0"
STEPS = 2
OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "lazy adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.01),
}


class Placed(sok.EmbeddingVariable):
    """A table with any placement."""

    def __init__(self, name, dim, placement):
        self._placement = placement
        super().__init__(name, dim)


class Model:
    """Tables of all placements on `device`, and lookups of all layouts in both exchanges."""

    def __init__(self, device, optimizer, fused=True):
        size = communicator().size
        bounds = [*range(0, 5 * size, 5), 40]  # five keys on each rank, and the rest on the last
        with tf.device(device):
            self.tables = [
                sok.EmbeddingVariable("shared", 4),
                sok.EmbeddingVariable("sums", 3),
                Placed("last", 2, f"one_rank:{size - 1}"),
                Placed("all", 1, "all_ranks"),
                Placed("ranges", 5, "ranges:" + ",".join(map(str, bounds))),
            ]
        shared, sums, last, everywhere, ranges = self.tables
        self.keys = [v1.placeholder(tf.int64, [None]) for _ in range(5)]
        self.training = v1.placeholder_with_default(True, [])
        bags = [_bags(keys) for keys in self.keys]
        sparse = [of_keys.to_sparse() for of_keys in bags]
        self.weights = tf.cast(self.keys[0] % 5, tf.float32) / 4 + 0.25
        self.outputs = group.lookup_group(
            [
                group.SparseLookup(shared, sparse[0], "mean", weights=self.weights),
                group.DenseLookup(shared, self.keys[1]),
                group.SparseLookup(sums, sparse[2], "mean", exchange="sums"),
                group.DenseLookup(last, self.keys[3]),
                group.RaggedLookup(everywhere, bags[4], "sqrtn"),
                group.DenseLookup(ranges, self.keys[4]),
            ],
            training=self.training,
        )
        loss = tf.add_n([tf.reduce_sum(tf.square(output - 0.3)) for output in self.outputs])
        self.gradients = tf.gradients(loss, [*self.tables, self.weights])
        with tf.device(device):
            self.quotients = [
                native.ops.sok_divide_gradients(gradient.values, divisor=3)
                for gradient in self.gradients[:-1]
            ]
        with sok.optimizers.fused_updates(fused):
            self.step = OPTIMIZERS[optimizer]().minimize(loss, var_list=self.tables)
        self.saver = v1.train.Saver()
        self.contents = harness.TableReader(*self.tables)

    def feed(self, step, training=True):
        """What this rank feeds in a step: the number of keys differs between ranks, and one rank has none."""
        rank = communicator().rank
        rng = np.random.default_rng([step, rank])
        counts = [0 if (step + rank) % 3 == 1 else int(rng.integers(1, 7)) for _ in self.keys]
        fed = {keys: rng.integers(0, 12, n) for keys, n in zip_equal(self.keys, counts)}
        return {**fed, self.training: training}


def _bags(keys):
    """Bags of up to two keys."""
    return tf.RaggedTensor.from_value_rowids(keys, tf.range(tf.size(keys)) // 2)


def init():
    return sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)


def initialize(session):
    session.run(init())
    harness.initialize(session)


def same_bits(ours, theirs):
    harness.assert_equal_arrays(tf.nest.flatten(ours), tf.nest.flatten(theirs))


def _trained(device, optimizer, fused=True, prefix=None):
    """Trains, and saves if there is a prefix; returns each step's outputs, and the tables' contents."""
    seen = []
    with tf.Graph().as_default():
        model = Model(device, optimizer, fused)
        with fake_gpu_device.session() as session:
            initialize(session)
            for step in range(STEPS):
                seen.append(session.run([model.outputs, model.gradients, model.quotients], model.feed(step)))
                session.run(model.step, model.feed(step))
                seen.append(session.run(model.outputs, model.feed(step + 1, training=False)))
            seen.append(model.contents.read(session))
            if prefix is not None:
                model.saver.save(session, prefix)
    return seen


def _compare_training(cases):
    """Trains on CPUs, and on GPUs or with every other rank on a GPU."""
    mixed = (CPU, GPU)[communicator().rank % 2]
    for optimizer, fused, device in cases:
        same_bits(_trained(device or mixed, optimizer, fused), _trained(CPU, optimizer, fused))
    return True


@pytest.mark.parametrize(
    ("size", "cases"),
    [
        (1, [("sgd", True, GPU)]),
        (2, [("adam", True, GPU), ("lazy adam", False, None)]),
        (3, [("lazy adam", True, None), ("sgd", False, GPU)]),
    ],
)
def test_training_has_the_bits_of_cpus(size, cases):
    assert all(ranks.run(_compare_training, cases, ranks=size))


def _placed_and_counted():
    """Runs a step; returns where ops ran, and the bytes copied besides those that were sent or fed."""
    with tf.Graph().as_default(), fake_gpu_device.session(rewrites=False) as session:
        table = sok.EmbeddingVariable("clicks", 32)
        keys, gradients = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.float32, [None, 32])
        (rows,) = group.lookup_group([group.DenseLookup(table, keys)])
        optimizer = v1.train.GradientDescentOptimizer(0.01)
        step = optimizer.apply_gradients([(tf.gradients(rows, table, gradients)[0], table)])
        statistics = native.horovod_ops().sok_exchange_statistics()
        initialize(session)
        feed = {keys: np.arange(64), gradients: np.ones([64, 32], np.float32)}
        metadata = v1.RunMetadata()
        session.run(step, feed, v1.RunOptions(output_partition_graphs=True), metadata)
        placed = {
            node.op: tf.DeviceSpec.from_string(node.device).device_type
            for partition in metadata.partition_graphs
            for node in partition.node
            if node.op.startswith("Sok")
        }
        before = session.run(statistics)
        with fake_gpu_device.copies() as copied:
            session.run(step, feed)
        sent, received = (session.run(statistics) - before)[3:]
        # The library's own op copies the ids.
        fed = feed[gradients].nbytes
        return placed, copied.to_host - sent, copied.to_device - received - fed, copied.to_host_by_ops


def test_words_leave_the_device_only_to_be_sent(of_two_ranks):
    for placed, to_host, to_device, by_ops in of_two_ranks["_placed_and_counted"]:
        assert placed.pop("SokPackBatch") == "CPU"
        assert len(placed) >= 6 and set(placed.values()) == {"GPU"}, placed
        # Scalars, such as hyper-parameters, may be anywhere.
        assert 0 <= to_host < 256 and 0 <= to_device < 256
        # Headers of messages, the numbers of ids and rows, and errors. The ids alone are 512 bytes.
        assert 0 < by_ops < 512


def _allreduced():
    """The sums over the ranks of floats of the GPU, of floats of the CPU and of ints; where ops ran."""
    with tf.Graph().as_default(), fake_gpu_device.session(rewrites=False) as session:
        fed = v1.placeholder(tf.float32, [2])
        with tf.device(GPU):
            halves = native.ops.sok_divide_gradients(fed, divisor=2)
        tensors = {"gpu": halves, "cpu": fed + 1.0, "ints": tf.cast(fed, tf.int32)}
        sums = [communicator().allreduce(tensor, False, name) for name, tensor in tensors.items()]
        metadata = v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        results = session.run(sums, {fed: [2.0, 4.0 + communicator().rank]}, options, metadata)
        nodes = {node.name: node for partition in metadata.partition_graphs for node in partition.node}
        opaque = [nodes[one.op.inputs[0].op.name] for one in sums]
        assert [node.op for node in opaque] == ["SokOpaque"] * 3
        return results, [tf.DeviceSpec.from_string(node.device).device_type for node in opaque]


def test_gradients_of_ordinary_variables_go_to_horovod_from_where_they_are(of_two_ranks):
    for results, devices in of_two_ranks["_allreduced"]:
        assert devices == ["GPU", "CPU", "CPU"]
        harness.assert_equal_arrays(results, [[2.0, 4.5], [6.0, 11.0], [4, 9]])


def _copied_by_a_prefetched_step():
    """Returns the bytes copied besides those that were sent or fed."""
    keys = np.arange(64)
    with tf.Graph().as_default(), fake_gpu_device.session() as session:
        table = sok.EmbeddingVariable("clicks", 32)
        gradients = v1.placeholder(tf.float32, [None, 32])
        prefetch = sok.LookupPrefetch(
            v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(keys).repeat()),
            lambda batch: group.lookup_group([group.DenseLookup(table, batch)])[0],
        )
        optimizer = v1.train.GradientDescentOptimizer(0.01)
        step = optimizer.apply_gradients([(tf.gradients(prefetch.outputs, table, gradients)[0], table)])
        statistics = native.horovod_ops().sok_exchange_statistics()
        initialize(session)
        feed = {gradients: np.ones([64, 32], np.float32)}
        session.run(prefetch.prime)
        session.run([step, prefetch.advance], feed)
        before = session.run(statistics)
        with fake_gpu_device.copies() as copied:
            session.run([step, prefetch.advance], feed)
        sent, received = (session.run(statistics) - before)[3:]
        # The library's own op copies the ids.
        to_device = copied.to_device - received - feed[gradients].nbytes
        return copied.to_host - sent, to_device, copied.to_host_by_ops


def test_words_of_a_prefetched_batch_stay_on_the_device(of_two_ranks):
    for to_host, to_device, by_ops in of_two_ranks["_copied_by_a_prefetched_step"]:
        assert 0 <= to_host < 256 and 0 <= to_device < 256
        assert 0 < by_ops < 512


def _one_bad_batch():
    size = communicator().size
    with tf.Graph().as_default(), fake_gpu_device.session() as session:
        with tf.device(GPU):
            table = sok.EmbeddingVariable("clicks", 2, capacity=3)
        row, keys = v1.placeholder(tf.int64, []), v1.placeholder(tf.int64, [None])
        indices = tf.stack([tf.stack([row, 0]), tf.constant([1, 0], tf.int64)])
        (rows,) = group.lookup_group(
            [group.SparseLookup(table, tf.SparseTensor(indices, keys, [2, 1]), "sum")]
        )
        initialize(session)
        me = communicator().rank
        good = {row: 0, keys: [2 * size, 2 * size + 1]}
        with pytest.raises(tf.errors.InvalidArgumentError, match="On rank 1: .*'clicks': .* row 7 of 2"):
            session.run(rows, {**good, row: 7} if me == 1 else good)
        assert session.run(table.size()) == 0
        # All of these keys belong to rank 0.
        with pytest.raises(tf.errors.ResourceExhaustedError, match="On rank 0: .*'clicks'"):
            session.run(rows, {**good, keys: [2 * me * size, (2 * me + 1) * size]})
        return session.run(rows, good).shape


def test_an_error_on_one_rank_is_an_error_on_all(of_two_ranks):
    assert of_two_ranks["_one_bad_batch"] == [(2, 2), (2, 2)]


def _restored(device, prefix):
    """The tables of a checkpoint, and those after one more step."""
    with tf.Graph().as_default():
        model = Model(device, "adam")
        with fake_gpu_device.session() as session:
            session.run(init())
            model.saver.restore(session, prefix)
            before = model.contents.read(session)
            session.run(model.step, model.feed(7))
            return before, model.contents.read(session)


def _sorted(contents):
    """Tables in the order of their keys."""
    return [(np.sort(keys), rows[np.argsort(keys)]) for keys, rows in contents]


def _save_and_restore(folder):
    """Saves on CPUs and on GPUs, and restores each checkpoint on the other."""
    saved = {device: _trained(device, "adam", prefix=f"{folder}/{device[1:4]}")[-1] for device in (CPU, GPU)}
    same_bits(_sorted(saved[CPU]), _sorted(saved[GPU]))
    on_gpu, on_cpu = _restored(GPU, f"{folder}/CPU"), _restored(CPU, f"{folder}/GPU")
    for restored in (on_gpu, on_cpu):
        same_bits(_sorted(restored[0]), _sorted(saved[CPU]))
    same_bits(_sorted(on_gpu[1]), _sorted(on_cpu[1]))


def _exchanges_in_two_orders():
    """Two exchanges of one run, which the ranks start in different orders with one thread each."""
    with tf.Graph().as_default():
        fed = v1.placeholder(tf.int64, [None])
        me, size = communicator().rank, communicator().size
        received = {}
        previous = []
        for name in ("first", "second")[:: 1 if me else -1]:
            with tf.device(GPU), tf.control_dependencies(previous):
                words = tf.identity(fed)
            previous = [words]
            received[name] = communicator().exchange(words, [1] * size, name, beside=words.op)[0]
        # Of this session: the process's would be as many as its first session asked for.
        config = v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
        with v1.Session(config=config) as session:
            return session.run([received["first"], received["second"]], {fed: np.arange(size) + 10 * me})


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory):
    """The results of two ranks, which also save and restore."""
    checks = [
        _placed_and_counted,
        _allreduced,
        _copied_by_a_prefetched_step,
        _one_bad_batch,
        _exchanges_in_two_orders,
        (_save_and_restore, str(tmp_path_factory.mktemp("saved"))),
    ]
    return ranks.run_checks(checks, ranks=2, env={"SOK_STALL_SECONDS": "20"})


def test_checkpoints_restore_on_the_other_device(of_two_ranks):
    assert of_two_ranks["_save_and_restore"] == [None, None]


def test_an_exchange_blocks_no_thread_of_the_executor(of_two_ranks):
    for rank, exchanged in enumerate(of_two_ranks["_exchanges_in_two_orders"]):
        for received in exchanged:
            np.testing.assert_array_equal(received, [rank, 10 + rank])
