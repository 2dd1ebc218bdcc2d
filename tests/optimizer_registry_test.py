"""Every optimizer of the registry, with every rule by which it trains tables: as variables, also with
gradients that overflow, and Adam on all rows in every step."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import math_ops

import harness
import optimizer_parity
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit import compat, native
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


# On a GPU, each step moves each row, and long gaps are nothing else than short ones.
STEPS = sized(on_cpu=215, on_gpu=45)
LATE = STEPS - 17
# When rows are in the batch: always, with gaps of 1 and 10 steps, twice with a long gap, once, never.
TOUCHED = {
    0: lambda step: True,
    1: lambda step: step % 2 == 0,
    2: lambda step: step % 11 == 0,
    3: lambda step: step in (7, LATE),
    4: lambda step: step == 3,
    5: lambda step: False,
}


def _adam(lr, beta1=0.9, beta2=0.999, epsilon=1e-8):
    return tf.compat.v1.train.AdamOptimizer(lr, beta1=beta1, beta2=beta2, epsilon=epsilon)


ARGUMENTS = {
    "default": {},
    "epsilon_1e-3": {"epsilon": 1e-3},
    "epsilon_0.1": {"epsilon": 0.1},
    "short_memory": {"beta1": 0.5, "beta2": 0.9},
    "long_memory": {"beta1": 0.99, "beta2": 0.9999},
}


def _deviation(make_optimizer, make_reference=_adam, reads=()):
    """The largest relative deviation of any row at any read, and at the end."""
    rng = np.random.default_rng(5)
    fed = []
    for number in range(STEPS):
        touched = [row for row, when in TOUCHED.items() if when(number)]
        positions = np.array(touched * 2, np.int64)
        labels = rng.standard_normal(positions.size).astype(np.float32)
        fed.append((positions, labels, 0.02 * (1.0 + 0.9 * np.cos(0.3 * number))))
    return optimizer_parity.worst_deviation(make_optimizer, make_reference, fed, reads, dense=False)


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_untouched_rows_move_as_tensorflows_do(arguments):
    def make(lr):
        return _adam(lr, **ARGUMENTS[arguments])

    assert _deviation(make, make) < 5e-6


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("reads", [(0, 1, 2, 20, 21, STEPS // 2, LATE - 1), range(STEPS)])
def test_reads_between_updates_see_current_rows_and_change_nothing(reads):
    assert _deviation(_adam, reads=reads) < 5e-6


def test_keras_adam_moves_untouched_rows():
    keras_adam = compat.legacy_keras_optimizers()[0][1].Adam
    assert _deviation(lambda lr: keras_adam(lr), lambda lr: keras_adam(lr), (10, STEPS // 2)) < 5e-6


def test_steps_of_another_table_do_not_age_a_table():
    # As with tf.Variables: a variable without a gradient in a step does not change.
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(name=name, dim=3) for name in "ab"]
        plains = [tf.Variable(np.zeros([4, 3], np.float32)) for _ in "ab"]
        keys = np.arange(4)
        rows = [tf.nn.embedding_lookup(table, keys) for table in tables]
        optimizers = [_adam(0.1), _adam(0.1)]
        steps = []
        for table, plain in zip_equal(tables, plains):
            losses = [
                tf.reduce_sum(tf.nn.embedding_lookup(variable, keys[:2]) ** 2) for variable in (table, plain)
            ]
            steps.append(
                [
                    optimizer.minimize(loss, var_list=[variable])
                    for optimizer, loss, variable in zip_equal(optimizers, losses, (table, plain))
                ]
            )
        harness.initialize(session)
        for plain, row in zip_equal(plains, rows):
            plain.load(session.run(row), session)
        for which in (0, 1, 1, 1, 0, 1, 0, 0):
            session.run(steps[which])
        for plain, row in zip_equal(plains, rows):
            np.testing.assert_allclose(*session.run([row, plain]), rtol=1e-5, atol=1e-6)


v1 = tf.compat.v1
_LEGACY = compat.legacy_keras_optimizers()
legacy = _LEGACY[0][1] if _LEGACY else None

# g * g overflows above 1.8e19; a thousandth of it, as in Adam, overflows above 5.8e20.
SPIKES = (1e18, 1e19, 2e19, 1e20, 1e21, 1e30, 1e38, 3e38, np.inf, np.nan)
DIM = 4
RATE = 0.1
# (steps in which a row has a gradient, steps in which it is the spike); one row for each pattern and spike.
PATTERNS = {
    "always": (range(12), (1,)),
    "untouched_after_the_spike": ((0, 1, 7, 11), (1,)),
    "untouched_before_the_spike": ((0, 6, 7, 11), (6,)),
    "spike_first": ((2, 3, 9), (2,)),
    "two_spikes": ((0, 1, 4, 5, 11), (1, 5)),
}
STEPS_OVERFLOW = 12

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(RATE),
    "momentum": lambda: v1.train.MomentumOptimizer(RATE, 0.9),
    "nesterov": lambda: v1.train.MomentumOptimizer(RATE, 0.9, use_nesterov=True),
    "adagrad": lambda: v1.train.AdagradOptimizer(RATE),
    "adagrad_large_rate": lambda: v1.train.AdagradOptimizer(30.0),
    "rowwise_adagrad": lambda: sok.optimizers.RowWiseAdagrad(RATE),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(RATE),
    "rmsprop_momentum": lambda: v1.train.RMSPropOptimizer(RATE, momentum=0.5),
    "rmsprop_large_rate": lambda: v1.train.RMSPropOptimizer(30.0, momentum=0.5),
    "rmsprop_centered": lambda: v1.train.RMSPropOptimizer(RATE, momentum=0.3, epsilon=1e-2, centered=True),
    "ftrl": lambda: v1.train.FtrlOptimizer(RATE),
    "ftrl_power": lambda: v1.train.FtrlOptimizer(RATE, learning_rate_power=-0.7),
    "ftrl_regularized": lambda: v1.train.FtrlOptimizer(
        RATE, l1_regularization_strength=0.01, l2_regularization_strength=0.02
    ),
    "ftrl_shrinkage": lambda: v1.train.FtrlOptimizer(RATE, l2_shrinkage_regularization_strength=0.05),
    "adam": lambda: v1.train.AdamOptimizer(RATE),
    "adam_large_rate": lambda: v1.train.AdamOptimizer(30.0),
    "adam_walked": lambda: v1.train.AdamOptimizer(RATE, beta1=0.9, beta2=0.9),
    "adam_eight_terms": lambda: v1.train.AdamOptimizer(RATE, beta1=0.9, beta2=0.98),
    # Fed, because TensorFlow replaces 0 * v by 0 if the 0 is a constant, for any v.
    "adam_no_memory": lambda: v1.train.AdamOptimizer(RATE, beta1=_fed(0.0), beta2=_fed(0.0)),
    "adam_epsilon_0": lambda: v1.train.AdamOptimizer(RATE, epsilon=0.0),
    "adam_walked_epsilon_0": lambda: v1.train.AdamOptimizer(RATE, beta1=0.9, beta2=0.9, epsilon=0.0),
    "sok_adam": lambda: sok.optimizers.Adam(RATE),
    "adadelta": lambda: v1.train.AdadeltaOptimizer(100 * RATE),
    "adadelta_arguments": lambda: v1.train.AdadeltaOptimizer(2 * RATE, rho=0.6, epsilon=0.01),
    "lazy_adam_epsilon_0": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(RATE, epsilon=0.0),
    "lazy_adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(RATE),
    "lazy_adam_by_row": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(RATE, second_moment="row"),
    "adam_async": lambda: sok.optimizers.AdamAsyncOptimizer(RATE),
    "adam_async_rmsprop": lambda: sok.optimizers.AdamAsyncOptimizer(RATE, apply_sparse_rmsprop=True),
    "adagrad_decay": lambda: sok.optimizers.AdagradDecayOptimizer(
        RATE, v1.train.get_or_create_global_step(), accumulator_decay_step=3
    ),
}
if legacy is not None:
    OPTIMIZERS.update(
        {
            "keras_momentum": lambda: legacy.SGD(RATE, momentum=0.9),
            "keras_nesterov": lambda: legacy.SGD(RATE, momentum=0.8, nesterov=True),
            "keras_adagrad": lambda: legacy.Adagrad(RATE),
            "keras_rmsprop": lambda: legacy.RMSprop(RATE),
            "keras_rmsprop_momentum": lambda: legacy.RMSprop(RATE, momentum=0.5),
            "keras_rmsprop_centered": lambda: legacy.RMSprop(RATE, epsilon=1e-2, centered=True),
            "keras_ftrl": lambda: legacy.Ftrl(RATE, **({"beta": 0.5} if compat.IS_TENSORFLOW_2 else {})),
            "keras_adam": lambda: legacy.Adam(RATE),
            "keras_adadelta": lambda: legacy.Adadelta(100 * RATE),
            "keras_adamax": lambda: legacy.Adamax(RATE),
            "keras_adamax_arguments": lambda: legacy.Adamax(RATE, beta_1=0.5, beta_2=0.9, epsilon=1e-2),
            "keras_nadam": lambda: legacy.Nadam(RATE),
            "keras_nadam_arguments": lambda: legacy.Nadam(RATE, beta_1=0.7, beta_2=0.95, epsilon=1e-3),
        }
    )


# What these do first with a gradient may overflow when it does not for a table: Keras' Adam squares it before
# it takes a thousandth, and Nadam divides it.
SPIKES_OF = {
    "keras_adam": (1e18, 1e19, 1e21, 1e30, 1e38, 3e38, np.inf, np.nan),
    "keras_nadam": (1e18, 1e19, 1e21, 1e30, 1e38, np.inf, np.nan),
    "keras_nadam_arguments": (1e18, 1e19, 1e21, 1e30, 1e38, np.inf, np.nan),
}


def _fed(value: float) -> tf.Tensor:
    return v1.placeholder_with_default(value, [])


@dataclasses.dataclass
class Twins:
    """A table and a tf.Variable that get the same gradients from optimizers of one kind."""

    table: sok.EmbeddingVariable
    positions: tf.Tensor
    gradients: tf.Tensor
    table_rows: tf.Tensor
    rows: tf.Variable
    step: tf.Operation

    def run(self, session: v1.Session, batch: tuple[np.ndarray, np.ndarray]) -> None:
        """One step of both."""
        session.run(self.step, {self.positions: batch[0], self.gradients: batch[1]})

    def expect_equal(self, session: v1.Session, when: str) -> None:
        """Checks for equal numbers up to rounding, and inf and NaN in the same places."""
        got, want = session.run([self.table_rows, self.rows])
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6, err_msg=when)


@contextlib.contextmanager
def make_twins(make_optimizer: Callable[[], object], count: int) -> Iterator[tuple[v1.Session, Twins]]:
    """A session and twins with `count` rows of ones."""
    with harness.graph_and_session() as session:
        positions = v1.placeholder(tf.int64, [None])
        gradients = v1.placeholder(tf.float32, [None, DIM])
        table = sok.EmbeddingVariable("table", DIM, initializer="ones")
        rows = tf.Variable(tf.ones([count, DIM]), name="rows", **compat.AS_RESOURCE)
        table_rows = tf.nn.embedding_lookup(table, tf.range(count, dtype=tf.int64))
        gradient = tf.IndexedSlices(gradients, positions)
        updates = [make_optimizer().apply_gradients([(gradient, x)]) for x in (table, rows)]
        with tf.control_dependencies(updates):
            step = v1.train.get_or_create_global_step().assign_add(1).op
        harness.initialize(session)
        session.run(table_rows)
        yield session, Twins(table, positions, gradients, table_rows, rows, step)


def batches(number: int, spikes: Sequence[float] = SPIKES) -> tuple[np.ndarray, np.ndarray]:
    """Positions and gradients of a step."""
    positions, gradients = [], []
    for row, (touched, spiked, spike) in enumerate(_rows(spikes)):
        if number not in touched:
            continue
        positions.append(row)
        ordinary = [1.0, -0.5, 0.25, 0.0]
        gradients.append([spike, -spike, 0.25, 0.0] if number in spiked else ordinary)
    return np.array(positions, np.int64), np.array(gradients, np.float32).reshape(-1, DIM)


def _rows(spikes: Sequence[float]) -> list[tuple]:
    return [(*pattern, spike) for pattern in PATTERNS.values() for spike in spikes]


def _right_square_root(x: object, name: str | None = None) -> tf.Tensor:
    """The `tf.sqrt` of other versions, for 1.15."""
    x = tf.convert_to_tensor(x)
    of_large = _SQRT(x * 2.0**-64) * 2.0**32
    return tf.where(tf.equal(x, np.inf), x, tf.where(x > 1e30, of_large, _SQRT(x)), name=name)


_SQRT = tf.sqrt


@pytest.fixture(autouse=True)
def right_square_roots(monkeypatch):
    """Gives 1.15 exact roots: its `tf.sqrt` is 2.6e19 for 3e38, and NaN for infinity.

    Only its code for eight numbers at a time is inexact; the last few roots of a tensor are right.
    """
    if not compat.IS_TENSORFLOW_2:
        monkeypatch.setattr(tf, "sqrt", _right_square_root)
        monkeypatch.setattr(math_ops, "sqrt", _right_square_root)


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize("read_each_step", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_spikes_leave_what_they_leave_in_a_variable(name, read_each_step):
    spikes = SPIKES_OF.get(name, SPIKES)
    with make_twins(OPTIMIZERS[name], len(_rows(spikes))) as (session, twins):
        for number in range(STEPS_OVERFLOW):
            twins.run(session, batches(number, spikes))
            if read_each_step:
                twins.expect_equal(session, f"after step {number}")
        twins.expect_equal(session, "at the end")


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize(
    "name", ["adam", "adam_walked", "lazy_adam", "ftrl", "ftrl_shrinkage", "rmsprop", "adagrad"]
)
def test_inf_of_a_checkpoint_acts_as_inf_in_a_variable(name, tmp_path):
    count = len(_rows(SPIKES))
    with make_twins(OPTIMIZERS[name], count) as (session, twins):
        for number in range(8):
            twins.run(session, batches(number))
        v1.train.Saver().save(session, str(tmp_path / "model"))
    with make_twins(OPTIMIZERS[name], count) as (session, twins):
        v1.train.Saver().restore(session, str(tmp_path / "model"))
        twins.expect_equal(session, "restored")
        for number in range(8, STEPS_OVERFLOW):
            twins.run(session, batches(number))
            twins.expect_equal(session, f"after step {number}")
