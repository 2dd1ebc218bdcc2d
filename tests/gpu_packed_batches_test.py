"""What lookups on TensorFlow's /GPU:0 take from the host: one copy, with results and errors of the CPU."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import tensorflow as tf

import fake_gpu_device
import harness
import sparse_operation_kit as sok
from harness import init_and_initialize
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1
CPU, GPU = "/CPU:0", "/GPU:0"
COMBINERS = ("sum", "mean", "sqrtn")
HOSTILE = (-1, 0, 1, 2, 1000, 2**31, 2**40, -(2**62))


def placeholder_for(feed, value):
    """A placeholder, to which `feed` then feeds the value."""
    placeholder = v1.placeholder(value.dtype, [None] * value.ndim)
    feed[placeholder] = value
    return placeholder


class Feature:
    """Ids of one lookup as arrays: of a layout, with or without weights, and perhaps wrong."""

    def __init__(self, rng, is_damaged):
        self.layout = rng.choice(["dense", "sparse", "sparse", "ragged"])
        self.dtype = rng.choice([np.int32, np.int64])
        self.bags = int(rng.integers(1, 9))
        # Few ids in many bags keep their indices.
        lengths = rng.integers(0, rng.choice([1, 2, 5]) + 1, self.bags)
        bag_of = np.repeat(np.arange(self.bags), lengths)
        if self.layout == "sparse" and rng.random() < 0.3:
            rng.shuffle(bag_of)
        self.ids = rng.integers(0, 40, len(bag_of)).astype(self.dtype)
        self.indices = np.stack([bag_of, np.arange(len(bag_of))], axis=1).astype(np.int64)
        self.splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.weights = rng.random(len(bag_of)).astype(np.float32) - 0.25
        self.has_weights = self.layout != "dense" and rng.random() < 0.5
        self.is_placed = self.has_weights and rng.random() < 0.6
        self.positive_only = self.has_weights and rng.random() < 0.5
        self.combiner = rng.choice(COMBINERS)
        self.places = self.indices.copy() if self.layout == "sparse" else self.splits.copy()
        if is_damaged:
            self.damage(rng)

    def damage(self, rng):
        for array in (self.indices, self.splits, self.places):
            if array.size and rng.random() < 0.4:
                array.flat[rng.integers(array.size)] = rng.choice(HOSTILE)
        if self.weights.size and rng.random() < 0.2:
            self.weights[rng.integers(self.weights.size)] = np.inf
        if rng.random() < 0.1:
            self.places = self.places[:-1]

    def lookup(self, table, feed):
        fed = functools.partial(placeholder_for, feed)
        ids = fed(self.ids)
        if self.layout == "dense":
            return group.DenseLookup(table, ids)
        weights = fed(self.weights) if self.has_weights else None
        if self.layout == "sparse":
            indices = fed(self.indices)
            sparse = tf.SparseTensor(indices, ids, fed(np.array([self.bags, 50], np.int64)))
            if self.is_placed:
                weights = tf.SparseTensor(fed(self.places), weights, sparse.dense_shape)
            kind, bags = group.SparseLookup, sparse
        else:
            bags = tf.RaggedTensor.from_row_splits(ids, fed(self.splits), validate=False)
            if self.is_placed:
                weights = tf.RaggedTensor.from_row_splits(weights, fed(self.places), validate=False)
            kind = group.RaggedLookup
        return kind(table, bags, self.combiner, weights=weights, positive_weights_only=self.positive_only)


def trained(device, features, ahead):
    """Outputs, gradients of weights and all rows after a step; or the error of the step."""
    feed = {}
    with tf.Graph().as_default(), fake_gpu_device.session() as session:
        with tf.device(device):
            tables = [
                sok.EmbeddingVariable(name=f"table_{f}", dim=3, key_dtype=feature.dtype)
                for f, feature in enumerate(features)
            ]
        lookups = [feature.lookup(table, feed) for table, feature in zip(tables, features)]  # noqa: B905
        if ahead:
            with group.looking_ahead():
                outputs = group.lookup_group(lookups)
        else:
            outputs = group.lookup_group(lookups)
        loss = tf.add_n([tf.reduce_sum(tf.square(output + 0.5)) for output in outputs])
        weights = [
            tensor
            for lookup in lookups
            for tensor in [getattr(lookup.weights, "values", lookup.weights)]
            if tensor is not None and not ahead
        ]
        gradients = tf.gradients(loss, weights)
        step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=tables)
        contents = harness.TableReader(*tables)
        init_and_initialize(session)
        try:
            seen = session.run([outputs, gradients], feed)
            session.run(step, feed)
        except tf.errors.InvalidArgumentError as error:
            return re.search("Lookup in embedding variable .*", str(error))[0]
        return [*tf.nest.flatten(seen), *tf.nest.flatten(contents.read(session))]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_results_and_errors_are_the_cpus(is_damaged):
    errors = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        features = [Feature(rng, is_damaged) for _ in range(rng.integers(1, 5))]
        of_gpu, of_cpu = (trained(device, features, ahead=seed % 2 == 1) for device in (GPU, CPU))
        if isinstance(of_cpu, str) or isinstance(of_gpu, str):
            errors += 1
            assert of_gpu == of_cpu
        else:
            harness.assert_equal_arrays(of_gpu, of_cpu)
    assert (errors >= 3) == is_damaged


def nodes_of(session, run, feed):
    """The nodes that ran, by op."""
    metadata = v1.RunMetadata()
    session.run(run, feed, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    return {node.op: node for partition in metadata.partition_graphs for node in partition.node}


def test_lookups_whose_ids_are_on_the_gpu_are_not_packed():
    """Also if other runs of the same session take these ids from the host."""
    with tf.Graph().as_default(), fake_gpu_device.session(rewrites=False) as session:
        with tf.device(GPU):
            tables = [sok.EmbeddingVariable(name=name, dim=2, initializer=1.0) for name in ("a", "b")]
        given = v1.placeholder(tf.int64, [None])
        with tf.device(GPU):
            made = tf.cast(v1.placeholder_with_default(np.array([4.0, 5.0], np.float32), [None]), tf.int64)
        rows = group.lookup_group(
            [group.DenseLookup(tables[0], given), group.DenseLookup(tables[1], made)], side_by_side=True
        )[0]
        init_and_initialize(session)
        from_host = {given: [1, 2], made: [3, 4]}
        for feed, packed in (({given: [1, 2]}, 1), (from_host, 2), ({given: [1, 2]}, 1)):
            nodes = nodes_of(session, rows, feed)
            assert "SokPackedGroupLookup" in nodes
            assert len(nodes["SokPackBatch"].attr["layouts"].list.s) == packed
            np.testing.assert_array_equal(session.run(rows, feed), np.ones([2, 4]))
        alone = group.lookup_group([group.DenseLookup(tables[1], made)])[0]
        assert "SokPackBatch" not in nodes_of(session, alone, {})


def test_a_lookup_in_a_function():
    with tf.Graph().as_default(), fake_gpu_device.session() as session:
        with tf.device(GPU):
            table = sok.EmbeddingVariable(name="clicks", dim=2, initializer=1.0)
        keys = v1.placeholder(tf.int64, [None])

        @tf.function
        def look_up(keys):
            return tf.nn.embedding_lookup(table, keys)

        rows = look_up(keys)
        init_and_initialize(session)
        for size in (3, 1, 0, 200):
            np.testing.assert_array_equal(session.run(rows, {keys: np.arange(size)}), np.ones([size, 2]))
        assert session.run(table.size()) == 200


def test_a_prefetched_batch_is_on_the_gpu_one_step_ahead():
    with tf.Graph().as_default(), fake_gpu_device.session() as session:
        with tf.device(GPU):
            table = sok.EmbeddingVariable(name="clicks", dim=2, initializer=1.0)
        with tf.device(CPU):
            data = v1.data.make_initializable_iterator(tf.data.Dataset.range(64).batch(16))
        prefetch = sok.LookupPrefetch(data, lambda keys: tf.nn.embedding_lookup(table, keys))
        init_and_initialize(session)
        session.run(data.initializer)
        for _ in range(2):
            ahead = nodes_of(session, prefetch.prime, {})
            assert {"SokPackBatch", "SokPackedGroupLookupAhead"} <= set(ahead)
            with fake_gpu_device.copies() as copied:
                in_step = nodes_of(session, prefetch.outputs, {})
            assert "SokGroupLookupRead" in in_step and not any("Pack" in op for op in in_step)
            assert copied.to_device == 0
        assert session.run(table.size()) == 32


@fake_gpu_device.counts_work
def test_what_a_batch_of_a_group_takes_over_the_bus():
    """8 bytes an id, 4 a split and 4 a weight, in one copy: of SparseTensors, ragged and dense ids."""
    bags, hotness, tables = 32, 4, 9
    ids = bags * hotness
    feed = {}
    fed = functools.partial(placeholder_for, feed)
    with tf.Graph().as_default(), fake_gpu_device.session(rewrites=False) as session:
        with tf.device(GPU):
            variables = [sok.EmbeddingVariable(name=f"table_{t}", dim=4) for t in range(tables)]
        lookups = []
        for t, variable in enumerate(variables):
            keys = fed(np.arange(ids))
            bag_of = np.repeat(np.arange(bags), hotness)
            if t % 3 == 0:
                indices = fed(np.stack([bag_of, np.arange(ids) % hotness], axis=1))
                sparse = tf.SparseTensor(indices, keys, fed(np.array([bags, hotness])))
                weights = tf.SparseTensor(
                    fed(feed[indices]), fed(np.ones(ids, np.float32)), sparse.dense_shape
                )
                lookups.append(group.SparseLookup(variable, sparse, "mean", weights=weights))
            elif t % 3 == 1:
                ragged = tf.RaggedTensor.from_row_splits(
                    keys, fed(np.arange(0, ids + 1, hotness)), validate=False
                )
                lookups.append(group.RaggedLookup(variable, ragged, "sum"))
            else:
                lookups.append(group.DenseLookup(variable, keys))
        outputs = tf.group(*group.lookup_group(lookups))
        init_and_initialize(session)
        for _ in range(2):
            session.run(outputs, feed)
        runtime = fake_gpu_device.cuda_runtime()
        before = runtime.enqueued_work()
        with fake_gpu_device.copies() as copied:
            session.run(outputs, feed)
        after = runtime.enqueued_work()
    assert copied.to_device == 0, "TensorFlow copied a tensor"
    batch = tables * ids * 8 + tables // 3 * (2 * (bags + 1) * 4 + ids * 4)
    # Tensors begin at multiples of 64 bytes, and kernels read how each lookup's ids are laid out.
    assert batch <= copied.to_device_by_ops <= batch + tables * (2 * 64 + 192) + 1024
    # The batch, what kernels read, and what the host reads.
    assert after.transfers - before.transfers <= 6
