"""Gradients that overflow float32 have the same effect on a table and a tf.Variable: numbers, inf and NaN."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import math_ops

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat

pytestmark = pytest.mark.cases_on_gpu(2)

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
STEPS = 12

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


@pytest.mark.parametrize("read_each_step", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_spikes_leave_what_they_leave_in_a_variable(name, read_each_step):
    spikes = SPIKES_OF.get(name, SPIKES)
    with make_twins(OPTIMIZERS[name], len(_rows(spikes))) as (session, twins):
        for number in range(STEPS):
            twins.run(session, batches(number, spikes))
            if read_each_step:
                twins.expect_equal(session, f"after step {number}")
        twins.expect_equal(session, "at the end")


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
        for number in range(8, STEPS):
            twins.run(session, batches(number))
            twins.expect_equal(session, f"after step {number}")
