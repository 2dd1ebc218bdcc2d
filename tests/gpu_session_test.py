"""Tables on TensorFlow's /GPU:0, that of `fake_gpu_device`: the bits of the CPU, and where ops run."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import fake_gpu_device
import harness
import sparse_operation_kit as sok
from harness import init_and_initialize
from sparse_operation_kit import native
from sparse_operation_kit.compat.internals import kernels
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup import group
from sparse_operation_kit.tables.storage_option import StorageOption, StorageType

v1 = tf.compat.v1
CPU, GPU = "/CPU:0", "/GPU:0"
BATCH, STEPS, DIMS = 12, 2, {"clicks": 4, "views": 6}


def batches(seed=0):
    """Of each step: keys of a dense lookup, and lengths and keys of bags."""
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        lengths = rng.integers(0, 4, BATCH)
        yield harness.zipf_keys(rng, BATCH, 30), lengths, harness.zipf_keys(rng, int(lengths.sum()), 30)


@contextlib.contextmanager
def one_table(device, rewrites=True, **options):
    """(session, table on `device`) in a new graph. Build the graph, then call `init_and_initialize`."""
    with tf.Graph().as_default(), fake_gpu_device.session(rewrites) as session:
        with tf.device(device):
            table = sok.EmbeddingVariable(name="clicks", dim=2, **options)
        yield session, table


class Model:
    """Two tables on `device`: rows of one, bags of both, sparse and ragged, and weights with gradients."""

    def __init__(self, device, optimizer, fused=True):
        with tf.device(device):
            self.tables = [sok.EmbeddingVariable(name=name, dim=dim) for name, dim in DIMS.items()]
        self.keys = v1.placeholder(tf.int64, [None])
        self.lengths = v1.placeholder(tf.int64, [None])
        self.of_bags = v1.placeholder(tf.int64, [None])
        ragged = tf.RaggedTensor.from_row_lengths(self.of_bags, self.lengths)
        self.weights = tf.cast(self.of_bags % 7, tf.float32) / 4 + 0.25
        self.training = v1.placeholder_with_default(True, [])
        clicks, views = self.tables
        self.outputs = group.lookup_group(
            [
                group.DenseLookup(clicks, self.keys),
                group.SparseLookup(views, ragged.to_sparse(), "mean", weights=self.weights),
                group.RaggedLookup(clicks, ragged, "sqrtn"),
            ],
            training=self.training,
        )
        loss = tf.add_n([tf.reduce_sum(tf.square(output + 0.5)) for output in self.outputs])
        self.gradients = tf.gradients(loss, [*self.tables, self.weights])
        with sok.optimizers.fused_updates(fused):
            self.step = optimizer().minimize(loss, var_list=self.tables)
        self.saver = v1.train.Saver()
        self.contents = harness.TableReader(*self.tables)

    def feed(self, batch, training=True):
        fed = dict(zip((self.keys, self.lengths, self.of_bags), batch))  # noqa: B905
        return {**fed, self.training: training}


OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "lazy adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.01),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
}


def same_bits(ours, theirs):
    harness.assert_equal_arrays(tf.nest.flatten(ours), tf.nest.flatten(theirs))


def trained(device, optimizer, fused, prefix=None):
    """The results of each step, and the tables afterwards."""
    seen = []
    with tf.Graph().as_default():
        model = Model(device, OPTIMIZERS[optimizer], fused)
        with fake_gpu_device.session() as session:
            init_and_initialize(session)
            for batch in batches():
                feed = model.feed(batch)
                seen.append(session.run([model.outputs, model.gradients], feed))
                session.run(model.step, feed)
                seen.append(session.run(model.outputs, model.feed(batch, training=False)))
            seen.append(model.contents.read(session))
            if prefix is not None:
                model.saver.save(session, prefix)
    return seen


def restored(device, optimizer, prefix):
    """The tables of a checkpoint, and those after one more step."""
    with tf.Graph().as_default():
        model = Model(device, OPTIMIZERS[optimizer])
        with fake_gpu_device.session() as session:
            session.run(harness.init())
            model.saver.restore(session, prefix)
            before = model.contents.read(session)
            session.run(model.step, model.feed(next(batches(seed=5))))
            return before, model.contents.read(session)


def ops_of(run, feed=None, session=None):
    """The ops that ran, as TensorFlow gave them to devices."""
    metadata = v1.RunMetadata()
    session.run(run, feed, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    return [node for partition in metadata.partition_graphs for node in partition.node]


def device_type(device):
    return tf.DeviceSpec.from_string(device).device_type


def devices_of(run, feed=None, session=None):
    """The device type of each op of this library that ran, by name of the op."""
    return {
        node.name: device_type(node.device)
        for node in ops_of(run, feed, session)
        if node.op.startswith("Sok")
    }


@pytest.mark.parametrize(
    ("optimizer", "fused"), [("sgd", True), ("adam", True), ("lazy adam", False), ("adagrad", False)]
)
def test_training_has_the_bits_of_the_cpu(optimizer, fused):
    same_bits(trained(GPU, optimizer, fused), trained(CPU, optimizer, fused))


@pytest.mark.parametrize("saved_on", [CPU, GPU])
def test_a_checkpoint_restores_on_either_device(saved_on, tmp_path):
    prefix = str(tmp_path / "model")
    trained(saved_on, "adam", True, prefix)
    same_bits(restored(GPU, "adam", prefix), restored(CPU, "adam", prefix))


def test_tables_are_on_the_gpu_unless_the_program_says_otherwise(monkeypatch):
    expected = {None: "GPU", CPU: "CPU", GPU: "GPU", "SOK_DEVICE=cpu": "CPU", "SOK_DEVICE=gpu": "GPU"}
    for place, device_type in expected.items():
        monkeypatch.delenv("SOK_DEVICE", raising=False)
        if place and "=" in place:
            monkeypatch.setenv(*place.split("="))
            place = None
        with one_table(place) as (session, table):
            rows = tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64))
            step = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows))
            init_and_initialize(session)
            found = devices_of([step, table.size()], session=session)
            tables = {name: found[name] for name in found if "InitHasRun" not in name}
            assert len(tables) >= 4 and set(tables.values()) == {device_type}


def test_sok_device_does_not_move_what_the_program_has_placed(monkeypatch):
    monkeypatch.setenv("SOK_DEVICE", "gpu")
    with tf.Graph().as_default(), tf.device(CPU):
        assert "CPU" in sok.EmbeddingVariable(name="clicks", dim=2).handle.device
    monkeypatch.setenv("SOK_DEVICE", "tpu")
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="'clicks': SOK_DEVICE must .*'tpu'"):
            sok.EmbeddingVariable(name="clicks", dim=2)


def look_up(tables):
    return group.lookup_group([group.DenseLookup(table, tf.constant([1], tf.int64)) for table in tables])


TOGETHER = {
    "looked up in one group": look_up,
    "described by one op": sok.table_statistics,
    "saved by one Saver": v1.train.Saver,
}


@pytest.mark.parametrize("other", [CPU, "/GPU:1"])
@pytest.mark.parametrize("what", TOGETHER)
def test_tables_on_two_devices_are_not_taken_together(what, other):
    with tf.Graph().as_default():
        tables = []
        for name, device in (("clicks", other), ("views", GPU)):
            with tf.device(device):
                tables.append(sok.EmbeddingVariable(name=name, dim=2))
        with pytest.raises(ValueError, match=f"'clicks' and 'views' cannot be {what}: .*{other[1:]}.*GPU:0"):
            TOGETHER[what](tables)


OPTIMIZERS_OF_TABLES = {
    **OPTIMIZERS,
    "adam async": lambda: sok.optimizers.AdamAsyncOptimizer(0.01),
    "schedule": lambda: sok.optimizers.Adam(tf.keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS_OF_TABLES)
def test_the_numbers_of_a_step_are_computed_on_the_host(optimizer):
    with tf.Graph().as_default() as graph:
        with tf.device(GPU):
            table = sok.EmbeddingVariable(name="clicks", dim=2)
        rows = tf.nn.embedding_lookup(table, tf.constant([1], tf.int64))
        OPTIMIZERS_OF_TABLES[optimizer]().minimize(tf.reduce_sum(rows))
        (step,) = (op for op in graph.get_operations() if op.type == "SokGroupLookupApplyGradients")
        hyper = next(tensor.op for tensor in step.inputs if tensor.op.type == "Pack")
        for op in (hyper, *(tensor.op for tensor in hyper.inputs)):
            assert tf.DeviceSpec.from_string(op.device).device_type in ("CPU", None)
            assert b"loc:@clicks" not in op.colocation_groups()


def test_a_model_may_be_placed_as_a_whole():
    with tf.Graph().as_default(), fake_gpu_device.session() as session, tf.device(GPU):
        table = sok.get_embedding_variable("clicks", 2, initializer="ones")
        with tf.device(CPU):
            data = v1.data.make_initializable_iterator(tf.data.Dataset.range(6).batch(2))
        prefetch = sok.LookupPrefetch(data, lambda keys: tf.nn.embedding_lookup(table, keys))
        step = v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(prefetch.outputs))
        with tf.device(None):
            init_and_initialize(session)
        session.run([data.initializer])
        session.run(prefetch.prime)
        for _ in range(3):
            found = devices_of([step, prefetch.advance], session=session)
            assert set(found.values()) == {"CPU", "GPU"}
        assert session.run(table.size()) == 6


@pytest.mark.parametrize(("device", "engine"), [(CPU, "gpu"), (GPU, "cpu")])
def test_an_engine_of_the_other_device_is_refused(device, engine):
    with one_table(device) as (session, table):
        move = native.ops.sok_initialize_table(table.handle, [], dim=2, engine=engine, name="move")
        init_and_initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"'{engine}' cannot make a .*{device[1:4]}"):
            session.run(move)


# Ops that take no table. An op on tables without a kernel for GPUs would keep its tables on the CPU.
ON_HOSTS_ONLY = {
    "SokCombineRows",
    "SokCombineRowsGrad",
    "SokCommitCheckpoint",
    "SokCompactCheckpoint",
    "SokGroupJoin",
    "SokHoldBatch",
    "SokInit",
    "SokInitHasRun",
    "SokMergeIds",
    "SokPackBatch",
    "SokRaiseFailures",
    "SokTakeBatch",
    "SokTrainRows",
    "SokVocabularyLookup",
}


def test_every_op_on_tables_has_a_kernel_for_gpus():
    devices = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.op.startswith("Sok"):
            devices.setdefault(kernel.op, set()).add(kernel.device_type)
    assert len(devices) > 30 and {op for op in devices if "GPU" not in devices[op]} == ON_HOSTS_ONLY


def test_assignment_eviction_export_and_statistics():
    results = []
    for device in (CPU, GPU):
        with one_table(device) as (session, table):
            rows = tf.nn.embedding_lookup(table, tf.constant([5, -6, 5, 7], tf.int64))
            assign = native.ops.sok_table_assign(table.handle, [7, 9], [[1.0, 2.0], [3.0, 4.0]])
            evict = table.evict(tf.constant([5, 11], tf.int64))
            init_and_initialize(session)
            seen = [session.run(rows), session.run(assign), session.run(evict), session.run(rows)]
            seen += session.run([table.size(), table.is_initialized(), *table.keys_and_rows()])
            results.append([*seen, session.run(native.ops.sok_table_statistics([table.handle]))])
    same_bits(*results)


def test_lookups_ahead_read_what_steps_have_trained():
    results = []
    for device in (CPU, GPU):
        with one_table(device) as (session, table):
            with group.looking_ahead():
                rows = tf.nn.embedding_lookup(table, tf.constant([5, -6, 5], tf.int64))
            step = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows * rows))
            init_and_initialize(session)
            results.append([session.run([rows, step])[0] for _ in range(3)])
    same_bits(*results)
    assert np.all(results[0][0] != results[0][2])


def test_step_counters_are_on_the_host_beside_ordinary_variables():
    results = []
    for device in (CPU, GPU):
        with one_table(device) as (session, table):
            # TensorFlow would put the counters beside this variable, the first by name.
            bias = v1.get_variable("bias", [2], initializer=tf.zeros_initializer(), use_resource=True)
            optimizer = v1.train.AdamOptimizer(0.1)
            rows = tf.nn.embedding_lookup(table, tf.constant([5, -6, 5], tf.int64))
            step = optimizer.minimize(tf.reduce_sum(tf.square(rows + bias + 1.0)))
            powers = optimizer._get_beta_accumulators()
            if device == GPU:
                assert {tf.DeviceSpec.from_string(power.device).device_type for power in powers} == {"CPU"}
            init_and_initialize(session)
            results.append([session.run([rows, step])[0] for _ in range(3)])
            results[-1].append(session.run(powers))
    same_bits(*results)


def sent_to_the_host(run, feed=None, session=None):
    """The tensors that a run copies from the GPU to the host, by name."""
    return [
        node.attr["tensor_name"].s.decode()
        for node in ops_of(run, feed, session)
        if node.op == "_Send"
        and device_type(node.attr["send_device"].s.decode()) == "GPU"
        and device_type(node.attr["recv_device"].s.decode()) == "CPU"
    ]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("training", [True, False, "constant"])
def test_constants_that_a_lookup_needs_on_the_host_do_not_come_from_the_gpu(training, ahead):
    with one_table(GPU, rewrites=False) as (session, table):
        keys = tf.SparseTensor(
            v1.placeholder_with_default(np.zeros([1, 2], np.int64), [None, 2]),
            v1.placeholder_with_default(np.ones([1], np.int64), [None]),
            tf.constant([1, 1], tf.int64),
        )
        if training == "constant":
            training = tf.constant(True)
        with group.looking_ahead() if ahead else contextlib.nullcontext():
            rows = group.lookup_group([group.SparseLookup(table, keys, "sum")], training=training)
        init_and_initialize(session)
        assert len(sent_to_the_host(rows, session=session)) == 1  # the rows
        # Not every TensorFlow has kernels that would put constants on a plugin's GPU.
        lookup = next(
            op for op in session.graph.get_operations() if "dense_shapes" in graph_ops.inputs_of(op)
        )
        inputs = graph_ops.inputs_of(lookup)
        for constant in (inputs["training"], *inputs["dense_shapes"]):
            assert device_type(constant.device) == "CPU"


@fake_gpu_device.counts_work
def test_orders_between_cpu_and_gpu_take_no_copy():
    # So many that the update is still in the GPU's stream when the op behind it runs.
    keys = np.arange(2000)
    pending = []
    with one_table(GPU, initializer=1.0) as (session, table):
        with tf.device(CPU):
            step = v1.train.create_global_step()
            before = v1.assign_add(v1.get_variable("before", initializer=0), 1)
        with tf.control_dependencies([before]):
            rows = tf.nn.embedding_lookup(table, tf.constant(keys))
        train = v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(rows), global_step=step)
        update = next(op for op in session.graph.get_operations() if op.type.endswith("ApplyGradients"))
        with tf.control_dependencies([tf.group(update)]), tf.device(CPU):
            runtime = fake_gpu_device.cuda_runtime()
            after = tf.numpy_function(lambda: pending.append(runtime.pending_work()), [], [])
        init_and_initialize(session)
        for _ in range(10):
            session.run([train, after])
        assert len(pending) == 10 and max(pending) > 0
        # What TensorFlow would send where there is no tensor.
        empty = [node.name for node in ops_of([train, after], session=session) if "/ctrl/_" in node.name]
        assert empty == []
        assert session.run(step) == 11
        np.testing.assert_array_equal(session.run(rows), np.full([len(keys), 2], 1 - 11 * 0.5))


@fake_gpu_device.counts_work
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_step_copies_its_batch_and_nothing_of_the_tables(layout):
    """For dense ids, and for bags with weights."""
    is_sparse = layout == "sparse"
    bags = 16 if is_sparse else 64
    with tf.Graph().as_default(), fake_gpu_device.session(rewrites=False) as session:
        with tf.device(GPU):
            table = sok.EmbeddingVariable(name="clicks", dim=32)
        with tf.device(CPU):
            dense_shape = tf.constant([bags, 4], tf.int64)
        keys, gradients = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.float32, [None, 32])
        indices, weights = v1.placeholder(tf.int64, [None, 2]), v1.placeholder(tf.float32, [None])
        rows = native.ops.sok_group_lookup(
            handles=[table.handle],
            ids=[keys],
            bags=[indices] if is_sparse else [],
            dense_shapes=[dense_shape] if is_sparse else [],
            weights=[weights] if is_sparse else [],
            training=True,
            num_outputs=1,
            dims=[32],
            table_of=[0],
            layouts=[layout],
            combiners=["mean" if is_sparse else "none"],
            weighted=[is_sparse],
            slots=[0],
        ).outputs[0]
        optimizer = v1.train.GradientDescentOptimizer(0.01)
        step = optimizer.apply_gradients([(tf.gradients(rows, table, gradients)[0], table)])
        init_and_initialize(session)
        feed = {keys: np.arange(64), gradients: np.ones([bags, 32], np.float32)}
        if is_sparse:
            feed[indices] = np.stack([np.arange(64) // 4, np.arange(64) % 4], axis=1)
            feed[weights] = np.ones(64, np.float32)
        session.run(step, feed)
        with fake_gpu_device.copies() as copied:
            session.run(step, feed)
    # Scalars, such as hyper-parameters, may be anywhere.
    of_gradients, scalars = bags * 32 * 4, 256
    assert of_gradients <= copied.to_device < of_gradients + scalars
    # Of bags, splits and weights; and what kernels read of one lookup and one table.
    batch, of_kernels = 64 * 8 + (4 * (bags + 1) + 64 * 4 if is_sparse else 0), 512
    assert batch <= copied.to_device_by_ops < batch + of_kernels
    assert copied.to_host < scalars
    # The numbers of ids and rows, and errors.
    assert 0 < copied.to_host_by_ops < scalars


def work_of_a_step(num_tables, bags=8):
    """What a step with known ids enqueues and allocates: in each table, `bags` bags of three ids."""
    with tf.Graph().as_default(), fake_gpu_device.session(rewrites=False) as session:
        with tf.device(GPU):
            tables = [sok.EmbeddingVariable(name=f"table_{t}", dim=4) for t in range(num_tables)]
        keys = [v1.placeholder(tf.int64, [None]) for _ in tables]
        indices = [v1.placeholder(tf.int64, [None, 2]) for _ in tables]
        gradients = [v1.placeholder(tf.float32, [None, 4]) for _ in tables]
        ids = [tf.SparseTensor(*given, [bags, 3]) for given in zip(indices, keys)]  # noqa: B905
        rows = sok.group_embedding_lookup_sparse(tables, ids, ["sum"] * num_tables)
        step = sok.tf.keras.optimizers.LazyAdamOptimizer(0.01).apply_gradients(
            zip(tf.gradients(rows, tables, gradients), tables)  # noqa: B905
        )
        init_and_initialize(session)
        feed = {key: np.arange(3 * bags) for key in keys}
        places = np.stack([np.arange(3 * bags) // 3, np.arange(3 * bags) % 3], axis=1)
        feed.update((place, places) for place in indices)
        feed.update((gradient, np.ones([bags, 4], np.float32)) for gradient in gradients)
        for _ in range(2):
            session.run(step, feed)
        runtime = fake_gpu_device.cuda_runtime()
        before = runtime.enqueued_work()
        session.run(step, feed)
        after = runtime.enqueued_work()
        return {name: getattr(after, name) - getattr(before, name) for name, _ in after._fields_}


@fake_gpu_device.counts_work
def test_what_the_host_does_in_a_step_is_for_the_group_not_for_each_table():
    few, many = work_of_a_step(6), work_of_a_step(20)
    assert many["kernels"] == few["kernels"] <= 17
    assert many["allocations"] == few["allocations"] == 0
    # TensorFlow copies each gradient. The ids of all features are one copy.
    assert many["transfers"] - few["transfers"] == 14
    assert few["transfers"] - 6 <= 6
    for work, tables in ((few, 6), (many, 20)):
        ids, splits, of_gradients = tables * 24, tables * (8 + 1), tables * 8 * 4 * 4
        # What kernels read of each lookup and table; tensors that begin at multiples of 64 bytes.
        of_kernels = tables * (192 + 2 * 63) + 1024
        assert work["bytes_to_device"] <= 8 * ids + 4 * splits + of_gradients + of_kernels


def test_a_disk_below_the_memory_of_a_cpu_is_refused_by_name(tmp_path):
    memory = StorageOption(StorageType.DRAM_SSDHASH, str(tmp_path), [1000])
    with tf.Graph().as_default(), v1.Session() as session:
        with tf.device(GPU):
            sok.EmbeddingVariable("my_table", 3, memory=memory)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="'my_table': DRAM_SSDHASH is for tables on a CPU"
        ):
            init_and_initialize(session)
