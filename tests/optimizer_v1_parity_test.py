"""Arguments of the optimizers of tf.compat.v1.train: a table is trained like a tf.Variable.

`optimizer_registry_test` tests every optimizer with the registry's arguments, also on a table alone and
without reads between the steps.
"""

import numpy as np
import pytest
import tensorflow as tf

import optimizer_parity
from sparse_operation_kit import compat

pytestmark = pytest.mark.cases_on_gpu(2)

train = tf.compat.v1.train

OPTIMIZERS = {
    "sgd_locking": lambda lr: train.GradientDescentOptimizer(lr, use_locking=True),
    "momentum_tensor": lambda lr: train.MomentumOptimizer(lr, tf.constant(0.8)),
    "adagrad_initial": lambda lr: train.AdagradOptimizer(lr, initial_accumulator_value=0.7, use_locking=True),
    "rmsprop": lambda lr: train.RMSPropOptimizer(lr),
    "rmsprop_momentum": lambda lr: train.RMSPropOptimizer(lr, decay=0.8, momentum=0.5, epsilon=1e-3),
    "rmsprop_centered": lambda lr: train.RMSPropOptimizer(lr, momentum=0.3, epsilon=1e-2, centered=True),
    "adadelta": lambda lr: train.AdadeltaOptimizer(lr * 100),
    "adadelta_arguments": lambda lr: train.AdadeltaOptimizer(lr * 2, rho=0.6, epsilon=0.01, use_locking=True),
    "adadelta_tensors": lambda lr: train.AdadeltaOptimizer(lambda: lr, tf.constant(0.8), tf.constant(0.1)),
    "ftrl": lambda lr: train.FtrlOptimizer(lr),
    "ftrl_power": lambda lr: train.FtrlOptimizer(lr, learning_rate_power=-0.7, initial_accumulator_value=0.3),
    "ftrl_regularized": lambda lr: train.FtrlOptimizer(
        lr, l1_regularization_strength=0.01, l2_regularization_strength=0.02
    ),
    "ftrl_shrinkage": lambda lr: train.FtrlOptimizer(
        lr, l2_regularization_strength=0.01, l2_shrinkage_regularization_strength=0.05
    ),
    "adam_arguments": lambda lr: train.AdamOptimizer(lr, beta1=0.7, beta2=0.95, epsilon=1e-3),
    "adam_callables": lambda lr: train.AdamOptimizer(lambda: lr, beta1=lambda: 0.8),
}
if compat.IS_TENSORFLOW_2:
    OPTIMIZERS["ftrl_beta"] = lambda lr: train.FtrlOptimizer(lr, beta=0.5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trains_as_on_a_variable_in_each_step(name):
    assert optimizer_parity.worst_deviation(OPTIMIZERS[name], read_each_step=True) < 5e-6


@pytest.mark.parametrize("name", ["adadelta", "adadelta_arguments"])
def test_a_spike_is_what_it_is_on_a_variable(name):
    spikes = (1e18, 1e25, 1e30, -1e38, np.inf, np.nan)
    gradients = [[1.0, spike, 1.0, -1.0, 0.0, 1.0] for spike in spikes]
    for got, want in optimizer_parity.rows_after_each(lambda: OPTIMIZERS[name](0.1), gradients):
        np.testing.assert_allclose(got, want, rtol=1e-5)
