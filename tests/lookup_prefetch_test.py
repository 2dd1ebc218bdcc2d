# Tags: slow
"""LookupPrefetch changes no bit of outputs and trained tables, and every batch is trained once."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf

import harness
import prefetched_training as training
import sparse_operation_kit as sok
from feature_column_support import fc, integers, originals_afterwards  # noqa: F401
from same_length import zip_equal
from sparse_operation_kit import feature_columns

pytestmark = pytest.mark.cases_on_gpu(1)
session = harness.session

v1 = tf.compat.v1

POLICIES = {
    "lru": {"capacity": 40, "on_full": "evict_lru"},
    "lfu": {"capacity": 40, "on_full": "evict_lfu"},
    "counter": {"admission": sok.CounterFilter(3)},
    "bloom and lru": {"admission": sok.CBFFilter(2, 4096, 1e-6), "capacity": 40, "on_full": "evict_lru"},
    "evicts at saves": {"eviction": sok.GlobalStepEvict(5), "admission": sok.CounterFilter(2)},
    "no hashing": {"capacity": 4096, "use_hashtable": False},
}
# Adam, which moves every row in every step, with one policy of each kind.
OPTIMIZER_WITH = {
    **dict.fromkeys(POLICIES, "adagrad"),
    **dict.fromkeys(["bloom and lru", "evicts at saves"], "adam"),
}


@functools.lru_cache(maxsize=None)
def _plain(optimizer):
    return training.train(False, optimizer)


@pytest.mark.parametrize(
    ("optimizer", "fused"), [*((optimizer, True) for optimizer in training.OPTIMIZERS), ("adam", False)]
)
def test_outputs_tables_and_slots_are_the_same(optimizer, fused):
    plain = _plain(optimizer)
    training.train(True, optimizer, fused=fused).assert_equal(plain)
    assert len(plain.steps) == training.STEPS
    assert plain.steps[training.NO_SAMPLES]["outputs"]["rows"][0].shape == (0, 16)
    assert len(plain.tables["odd"]["keys"]) > 20


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_come_and_go_as_they_do_without(policy):
    data = training.batches()
    if policy == "no hashing":
        data = [
            {name: value % 4096 if "keys" in name else value for name, value in batch.items()}
            for batch in data
        ]
    plain, ahead = (
        training.train(
            way,
            OPTIMIZER_WITH[policy],
            data=data,
            policies=lambda name: dict(POLICIES[policy]),
            save_in_between=policy == "evicts at saves",
        )
        for way in (False, True)
    )
    ahead.assert_equal(plain)
    limited = {name: len(arrays["keys"]) for name, arrays in plain.tables.items()}
    everything = {name: len(arrays["keys"]) for name, arrays in _plain("adagrad").tables.items()}
    assert policy == "no hashing" or limited != everything


def _reads_only(tables, batch):
    with tf.name_scope("reads"):
        bags = tf.RaggedTensor.from_row_lengths(batch["keys1"], batch["lengths1"])
        read = sok.group_embedding_lookup_sparse([tables["odd"]], [bags], ["sum"], training=False)
    outputs = training.look_up(tables, batch)
    return {**outputs, "read": read, "rows": [*outputs["rows"], *read]}


def _plain_lookups(tables, batch):
    # Several lookups of one table with different ops, and an output that is computed from two of them.
    rows = [tf.nn.embedding_lookup(tables["small"], batch["labels_as_keys"]) for _ in range(2)]
    return {"rows": [rows[0] * tf.expand_dims(batch["labels"], 1), rows[1]], "labels": batch["labels"]}


@pytest.mark.parametrize("look_up", [_reads_only, _plain_lookups])
def test_other_lookups_are_the_same(look_up):
    data = [
        {**batch, "labels_as_keys": np.arange(len(batch["labels"])) + step % 5}
        for step, batch in enumerate(training.batches())
    ]
    plain, ahead = (training.train(way, "adam", data=data, look_up=look_up) for way in (False, True))
    ahead.assert_equal(plain)


def _columns_model(features):
    """An input layer of columns with tables, in a group and alone, with numbers, and with a variable.

    Variables have seeds of their own: 1.15 derives others from the number of ops that the graph has.
    """
    identity = fc.categorical_column_with_identity("d", 10)
    columns = [
        integers("a", scope="both"),
        fc.numeric_column("n"),
        integers("b", 6, scope="both", combiner="sum"),
        integers("c"),
        fc.embedding_column(identity, 3, initializer=v1.random_normal_initializer(seed=2)),
        fc.indicator_column(fc.categorical_column_with_vocabulary_list("e", ["x", "y"])),
    ]
    return fc.input_layer(features, columns), features["n"]


def _column_batches(count):
    for step in range(count):
        rng = np.random.default_rng(step)
        samples = int(rng.integers(1, 7))
        keys = {name: rng.zipf(1.3, [samples, 2]) % 50 for name in "abc"}
        yield {
            **keys,
            "d": rng.integers(0, 10, [samples, 1]),
            "e": rng.choice([b"x", b"y", b"z"], [samples, 1]),
            "n": rng.normal(size=[samples]).astype(np.float32),
        }


def _train_columns(ahead, tmp_path):
    with harness.graph_and_session() as session:
        v1.set_random_seed(1)
        data = list(_column_batches(20))
        signature = {
            name: tf.TensorSpec([None, *value.shape[1:]], tf.string if name == "e" else value.dtype)
            for name, value in data[0].items()
        }
        dataset = harness.dataset_of(lambda: iter(data), signature)
        iterator = v1.data.make_initializable_iterator(dataset)
        # A function of one argument gets the dict itself.
        prefetch = sok.LookupPrefetch(iterator, _columns_model) if ahead else None
        layer, numbers = prefetch.outputs if ahead else _columns_model(iterator.get_next())
        initializer = v1.random_normal_initializer(seed=3)
        kernel = v1.get_variable("kernel", [layer.shape[1]], initializer=initializer)
        predictions = tf.linalg.matvec(layer, kernel)
        loss = tf.reduce_mean(tf.square(predictions - numbers))
        update = v1.train.AdamOptimizer(0.05).minimize(loss)
        saver = v1.train.Saver()
        initializers = [v1.global_variables_initializer(), v1.tables_initializer(), iterator.initializer]
        session.run(initializers)
        if ahead:
            session.run(prefetch.prime)
        losses = []
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                fetches = [layer, loss, update, *([prefetch.advance] if ahead else [])]
                losses.append(session.run(fetches)[:2])
        prefix = saver.save(session, str(tmp_path / f"{ahead}"))
        ordinary = {
            variable.name: session.run(variable)
            for variable in v1.trainable_variables()
            if not isinstance(variable, sok.EmbeddingVariable)
        }
        return losses, harness.saved_tables(prefix), ordinary


def test_input_layer_with_groups_numbers_and_ordinary_variables(tmp_path):
    plain, ahead = (_train_columns(way, tmp_path) for way in (False, True))
    assert len(plain[0]) == 20 and len(plain[1]) == 3 and plain[2]
    for one, other in zip_equal(ahead, plain):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def _small_model(iterator):
    table = sok.EmbeddingVariable("table", 2)

    def look_up(keys):
        return tf.nn.embedding_lookup(table, keys), keys

    prefetch = sok.LookupPrefetch(iterator, look_up)
    rows, keys = prefetch.outputs
    step = v1.train.get_or_create_global_step()
    update = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows), step)
    return prefetch, table, keys, step, update


def _keys_iterator(steps):
    dataset = tf.data.Dataset.range(steps).map(lambda i: tf.stack([i, i // 2]))
    iterator = v1.data.make_initializable_iterator(dataset)
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_hook_in_a_monitored_session_trains_every_batch_once(steps):
    with tf.Graph().as_default():
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=1)
        prefetch, table, keys, step, update = _small_model(_keys_iterator(steps))
        size = table.size()
        seen = []
        with v1.train.MonitoredTrainingSession(hooks=[prefetch]) as session:
            while not session.should_stop():
                assert session.run(size) == len({key for batch in seen for key in batch})
                assert session.run(step) == len(seen)
                seen.append(session.run([update, keys])[1].tolist())
        assert seen == [[i, i // 2] for i in range(steps)]


def test_a_monitored_session_may_stop_early_and_another_begins_anew():
    with tf.Graph().as_default():
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=1)
        prefetch, _, keys, _, update = _small_model(_keys_iterator(9))
        for _ in range(2):
            seen = []
            hooks = [prefetch, v1.train.StopAtStepHook(num_steps=3)]
            with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
                while not session.should_stop():
                    seen.append(session.run([update, keys])[1][0])
            assert seen == [0, 1, 2]


def test_two_prefetches_in_one_step(session):
    iterators = [_keys_iterator(4), _keys_iterator(4)]
    table = sok.EmbeddingVariable("table", 2)
    prefetches = [
        sok.LookupPrefetch(iterator, lambda keys: (tf.nn.embedding_lookup(table, keys), keys))
        for iterator in iterators
    ]
    loss = tf.add_n([tf.reduce_sum(prefetch.outputs[0]) for prefetch in prefetches])
    update = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    harness.initialize(session)
    session.run(v1.tables_initializer())
    session.run([prefetch.prime for prefetch in prefetches])
    for step in range(4):
        fetches = [[prefetch.outputs[1], prefetch.advance] for prefetch in prefetches]
        of_both = session.run([fetches, update])[0]
        assert [keys.tolist() for keys, _ in of_both] == [[step, step // 2]] * 2


def test_ids_are_merged_and_nothing_is_inserted_ahead(session):
    prefetch, table, _, _, update = _small_model(_keys_iterator(3))
    types = [op.type for op in session.graph.get_operations()]
    assert types.count("SokGroupLookupAhead") == types.count("SokGroupLookupRead") == 1
    assert types.count("SokGroupLookup") == 0
    harness.initialize(session)
    session.run(v1.tables_initializer())
    session.run(prefetch.prime)
    assert session.run(table.size()) == 0
    session.run([update, prefetch.advance])
    assert session.run(table.size()) == 1  # the batch (0, 0) is trained; (1, 0) is prefetched


def test_variables_have_the_names_that_they_have_without():
    with tf.Graph().as_default():
        made = []

        def look_up(keys):
            made.append(sok.EmbeddingVariable("items", 2))
            return tf.nn.embedding_lookup(made[0], keys)

        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=1)
        sok.LookupPrefetch(_keys_iterator(3), look_up, name="ahead")
        assert made[0].m_var_name == "items"


def test_training_scope_and_lookups_outside_are_as_ever():
    with harness.graph_and_session() as session, feature_columns.training_scope(True):
        prefetch, table, _, _, _ = _small_model(_keys_iterator(3))
        tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64))
        types = [op.type for op in session.graph.get_operations()]
        assert types.count("SokGroupLookup") == 1
        assert prefetch.outputs[0].shape.as_list() == [2, 2]
