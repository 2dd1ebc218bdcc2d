"""Arguments of legacy Keras optimizers: a table is trained like a tf.Variable.

`optimizer_registry_test` tests every optimizer with the registry's arguments, also on a table alone and
without reads between the steps.
"""

import importlib

import numpy as np
import pytest
import tensorflow as tf

import optimizer_parity
from sparse_operation_kit import compat

_MODULES = compat.legacy_keras_optimizers()
pytestmark = [
    pytest.mark.skipif(not _MODULES, reason="this TensorFlow has no legacy Keras optimizers"),
    pytest.mark.cases_on_gpu(2),
]
legacy = _MODULES[0][1] if _MODULES else None
_IS_1 = compat.VERSION < (2, 0)

OPTIMIZERS = {
    "sgd_momentum_tensor": lambda lr: legacy.SGD(lr, momentum=tf.constant(0.5)),
    "adagrad_arguments": lambda lr: legacy.Adagrad(lr, initial_accumulator_value=0.5, epsilon=1e-2),
    "ftrl": lambda lr: legacy.Ftrl(lr),
    "ftrl_arguments": lambda lr: legacy.Ftrl(
        lr,
        learning_rate_power=-0.6,
        initial_accumulator_value=0.2,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.02,
        l2_shrinkage_regularization_strength=0.03,
        **({} if _IS_1 else {"beta": 0.4}),
    ),
    "adam_arguments": lambda lr: legacy.Adam(lr, beta_1=0.7, beta_2=tf.constant(0.95), epsilon=1e-3),
    "adadelta": lambda lr: legacy.Adadelta(lr * 100),
    "adadelta_arguments": lambda lr: legacy.Adadelta(lr, rho=tf.constant(0.7), epsilon=0.1),
    "adamax": lambda lr: legacy.Adamax(lr),
    "adamax_arguments": lambda lr: legacy.Adamax(lr, beta_1=tf.constant(0.5), beta_2=0.9, epsilon=1e-2),
    "nadam": lambda lr: legacy.Nadam(lr),
    "nadam_arguments": lambda lr: legacy.Nadam(lr, beta_1=0.7, beta_2=tf.constant(0.95), epsilon=1e-3),
    "nadam_schedule": lambda lr: legacy.Nadam(lr, schedule_decay=2.0),
    "decay": lambda lr: legacy.SGD(0.1, decay=0.1),
    "callable": lambda lr: legacy.Adagrad(lambda: lr),
}


def _schedule(factory):
    keras = tf.keras if compat.HAS_KERAS_2 else importlib.import_module("tf_keras")
    schedules = keras.optimizers.schedules
    return lambda lr: factory(schedules.ExponentialDecay(0.1, decay_steps=5, decay_rate=0.5))


OPTIMIZERS["sgd_schedule"] = _schedule(lambda schedule: legacy.SGD(schedule))
OPTIMIZERS["adadelta_schedule"] = _schedule(lambda schedule: legacy.Adadelta(schedule, epsilon=0.01))
OPTIMIZERS["adamax_schedule"] = _schedule(lambda schedule: legacy.Adamax(schedule, decay=0.01))
OPTIMIZERS["adam_schedule"] = _schedule(lambda schedule: legacy.Adam(schedule, decay=0.01))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trains_as_on_a_variable_in_each_step(name):
    assert optimizer_parity.worst_deviation(OPTIMIZERS[name], read_each_step=True) < 5e-6


@pytest.mark.parametrize(
    "clip", [{"clipvalue": 0.01}, {"clipnorm": 0.02}, *([] if _IS_1 else [{"global_clipnorm": 0.05}])]
)
def test_clipping_of_the_optimizer_acts(clip):
    # The norm of a table's gradient is computed after summing per row. TensorFlow does not sum the gradients
    # of repeated ids first. Both agree for distinct ids.
    deviation = optimizer_parity.worst_deviation(lambda lr: legacy.Adagrad(lr, **clip), distinct=True)
    unclipped = optimizer_parity.worst_deviation(
        lambda lr: legacy.Adagrad(lr, **clip), lambda lr: legacy.Adagrad(lr), distinct=True
    )
    assert deviation < 5e-6 < unclipped


@pytest.mark.parametrize("name", ["adadelta", "adamax", "adamax_arguments", "nadam", "nadam_arguments"])
def test_a_spike_is_what_it_is_on_a_variable(name):
    spikes = (1e18, 1e25, 1e30, -1e38, np.inf, np.nan)
    gradients = [[1.0, spike, 1.0, -1.0, 0.0, 1.0] for spike in spikes]
    for got, want in optimizer_parity.rows_after_each(lambda: OPTIMIZERS[name](0.1), gradients):
        np.testing.assert_allclose(got, want, rtol=1e-5)
