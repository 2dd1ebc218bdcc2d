"""Every optimizer of the registry, with every rule by which it trains tables."""

import contextlib
import json

import numpy as np
import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok
from device_of_tests import sized
from sparse_operation_kit import native
from sparse_operation_kit.optimizers.mapping import known_optimizers

pytestmark = pytest.mark.cases_on_gpu(3)

ENTRIES = [pytest.param(entry, id=entry.public_name) for entry in known_optimizers()]
CASES = [
    pytest.param(entry, rule, id=f"{entry.public_name}-{rule}")
    for entry, rule in optimizer_parity.entries_and_rules()
]


class Model:
    """Two tables of one group, pooled, with ids that occur twice in a batch, seldom, and never."""

    def __init__(self, entry, rule):
        self.tables = [sok.EmbeddingVariable(f"table{dim}", dim, initializer="ones") for dim in (4, 7)]
        self.ids = tf.compat.v1.placeholder(tf.int64, [None])
        self.rate = tf.compat.v1.placeholder(tf.float32, [])
        bags = tf.RaggedTensor.from_row_splits(self.ids, tf.range(0, tf.size(self.ids) + 1, 2))
        pooled = sok.group_embedding_lookup_sparse(self.tables, [bags, bags], ["sum", "mean"])
        loss = tf.add_n([tf.reduce_sum(tf.square(rows - 0.3)) for rows in pooled])
        optimizer = entry.make(rule, self.rate)
        gradients = tf.gradients(loss, self.tables)
        self.step = optimizer.apply_gradients(list(zip(gradients, self.tables)))  # noqa: B905

    def train(self, session, steps, first=0, rate=0.05):
        for number in range(first, first + steps):
            # Some batches are empty.
            count = 0 if number % 5 == 3 else 12
            ids = np.random.default_rng(number).integers(0, 8 if number % 3 else 16, count)
            session.run(self.step, {self.ids: ids, self.rate: rate})


@pytest.mark.parametrize(("entry", "rule"), CASES)
def test_trains_as_on_a_variable(entry, rule):
    assert optimizer_parity.worst_deviation(lambda lr: entry.make(rule, lr)) < 5e-6


@pytest.mark.parametrize(("entry", "rule"), CASES)
def test_trains_a_table_alone_with_a_number_as_rate_and_reads_between_steps(entry, rule):
    deviation = optimizer_parity.worst_deviation(
        lambda lr: entry.make(rule, 0.03),
        fed=optimizer_parity.batches_and_rates(sized(20, 5)),
        reads=optimizer_parity.EACH,
        dense=False,
    )
    assert deviation < 5e-6


def _slots_of(prefix, name):
    shard = json.loads(tf.train.load_checkpoint(prefix).get_tensor(f"{name}#0"))
    return [array.partition("-")[2] for array in shard["arrays"] if array.startswith("slot-")]


@pytest.mark.parametrize(("entry", "rule"), CASES)
def test_training_goes_on_from_a_checkpoint_and_refuses_a_rate_that_is_not_finite(entry, rule, tmp_path):
    prefix = str(tmp_path / "model")
    with tf.Graph().as_default():
        init = sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        model = Model(entry, rule)
        reader = harness.TableReader(*model.tables)
        saver = tf.compat.v1.train.Saver(
            [*model.tables, *[v for v in tf.compat.v1.global_variables() if v not in model.tables]]
        )
        initializer = tf.compat.v1.global_variables_initializer()

        @contextlib.contextmanager
        def new_session():
            with tf.compat.v1.Session() as session:
                session.run(init)
                session.run(initializer)
                yield session

        def contents(session):
            return [(keys[np.argsort(keys)], rows[np.argsort(keys)]) for keys, rows in reader.read(session)]

        with new_session() as session:
            model.train(session, 6)
            saver.save(session, prefix)
            model.train(session, 6, first=6)
            expected = contents(session)
        with new_session() as session:
            saver.restore(session, prefix)
            model.train(session, 6, first=6)
            restored = contents(session)
            first = next(iter(native.optimizer_rules()[rule]["hyper"]))
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=f"'{rule}': {first} must be .* got -?nan"
            ):
                model.train(session, 1, rate=np.nan)
            after_error = contents(session)
    assert sorted(_slots_of(prefix, "table4")) == sorted(native.optimizer_rules()[rule]["slots"])
    for others in (restored, after_error):
        tf.nest.map_structure(np.testing.assert_array_equal, others, expected)


@pytest.mark.parametrize("entry", ENTRIES)
def test_unsupported_arguments_and_gradients_are_refused(entry):
    rule = next(iter(entry.rules))
    with harness.graph_and_session():
        table = sok.EmbeddingVariable("my_table", 2)
        with pytest.raises(TypeError, match="'my_table' must be tf.IndexedSlices"):
            entry.make(rule, 0.1).apply_gradients([(tf.ones([3, 2]), table)])
        gradient = tf.IndexedSlices(tf.ones([1, 2], tf.float16), tf.constant([0], tf.int64))
        with pytest.raises(TypeError, match="'my_table' is float16, not float32"):
            entry.make(rule, 0.1).apply_gradients([(gradient, table)])


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_subclass_that_changes_the_updates_is_refused(entry):
    with harness.graph_and_session():
        table = sok.EmbeddingVariable("my_table", 2)
        gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0], tf.int64))
        for method in entry.update_methods:
            changed = type("Changed", (entry.cls,), {method: lambda self, *args, **kwargs: None})
            optimizer = entry.make(next(iter(entry.rules)), 0.1)
            optimizer.__class__ = changed
            with pytest.raises(TypeError, match=f"it changes {method} of {entry.public_name}"):
                optimizer.apply_gradients([(gradient, table)])


@pytest.mark.parametrize(("entry", "rule"), CASES)
def test_slots_have_the_names_that_ordinary_variables_slots_have(entry, rule):
    with harness.graph_and_session():
        variable = tf.compat.v1.get_variable("plain", initializer=tf.ones([3, 2]), use_resource=True)
        optimizer = entry.make(rule, 0.1)
        optimizer.apply_gradients([(tf.ones([3, 2]), variable)])
        names = optimizer.get_slot_names()
    assert set(entry.slots) <= set(names) or rule not in _rules_of_all_slots(entry)
    assert set(native.optimizer_rules()[rule]["slots"]) <= {*names, *map(entry.slots.get, names)}


def _rules_of_all_slots(entry):
    """The entry's rules that have all slots to which the optimizer class gives other names."""
    rules = native.optimizer_rules()
    return [rule for rule in entry.rules if set(entry.slots.values()) <= set(rules[rule]["slots"])]


def test_every_rule_of_the_engine_has_an_optimizer():
    used = {rule for entry in known_optimizers() for rule in [*entry.rules, *entry.row_rules.values()]}
    assert used <= set(native.optimizer_rules())
    assert used == set(native.optimizer_rules()) or not any(
        entry.public_name.startswith("tf.keras") for entry in known_optimizers()
    )
