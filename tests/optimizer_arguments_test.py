"""Arguments of optimizers: a table is trained like a tf.Variable.

`optimizer_registry_test` tests every optimizer with the registry's arguments, also on a table alone and
without reads between the steps.
"""

import importlib

import pytest
import tensorflow as tf

import optimizer_parity
import sparse_operation_kit as sok
from sparse_operation_kit import compat

pytestmark = pytest.mark.cases_on_gpu(4)

train = tf.compat.v1.train
legacy = compat.legacy_keras_optimizers()[0][1]
_IS_1 = compat.VERSION < (2, 0)

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
    "keras_sgd_momentum_tensor": lambda lr: legacy.SGD(lr, momentum=tf.constant(0.5)),
    "keras_sgd_decay": lambda lr: legacy.SGD(0.1, decay=0.1),
    "keras_sgd_schedule": lambda lr: legacy.SGD(_keras_schedule()),
    "keras_adagrad_arguments": lambda lr: legacy.Adagrad(lr, initial_accumulator_value=0.5, epsilon=1e-2),
    "keras_adagrad_callable": lambda lr: legacy.Adagrad(lambda: lr),
    "keras_ftrl": lambda lr: legacy.Ftrl(lr),
    "keras_ftrl_arguments": lambda lr: legacy.Ftrl(
        lr,
        learning_rate_power=-0.6,
        initial_accumulator_value=0.2,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.02,
        l2_shrinkage_regularization_strength=0.03,
        **({} if _IS_1 else {"beta": 0.4}),
    ),
    "keras_adam_arguments": lambda lr: legacy.Adam(lr, beta_1=0.7, beta_2=tf.constant(0.95), epsilon=1e-3),
    "keras_adam_schedule": lambda lr: legacy.Adam(_keras_schedule(), decay=0.01),
    "keras_adadelta": lambda lr: legacy.Adadelta(lr * 100),
    "keras_adadelta_arguments": lambda lr: legacy.Adadelta(lr, rho=tf.constant(0.7), epsilon=0.1),
    "keras_adadelta_schedule": lambda lr: legacy.Adadelta(_keras_schedule(), epsilon=0.01),
    "keras_adamax": lambda lr: legacy.Adamax(lr),
    "keras_adamax_arguments": lambda lr: legacy.Adamax(lr, beta_1=tf.constant(0.5), beta_2=0.9, epsilon=1e-2),
    "keras_adamax_schedule": lambda lr: legacy.Adamax(_keras_schedule(), decay=0.01),
    "keras_nadam": lambda lr: legacy.Nadam(lr),
    "keras_nadam_arguments": lambda lr: legacy.Nadam(lr, beta_1=0.7, beta_2=tf.constant(0.95), epsilon=1e-3),
    "keras_nadam_schedule": lambda lr: legacy.Nadam(lr, schedule_decay=2.0),
}
if compat.IS_TENSORFLOW_2:
    OPTIMIZERS["ftrl_beta"] = lambda lr: train.FtrlOptimizer(lr, beta=0.5)


def _keras_schedule():
    keras = tf.keras if compat.HAS_KERAS_2 else importlib.import_module("tf_keras")
    return keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=5, decay_rate=0.5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trains_as_on_a_variable_in_each_step(name):
    deviation = optimizer_parity.worst_deviation(OPTIMIZERS[name], reads=optimizer_parity.EACH)
    assert deviation < 5e-6


def _adam(lr, beta1=0.9, beta2=0.999, epsilon=1e-7):
    """TensorFlow's, with the defaults of `sok.optimizers.Adam`."""
    return train.AdamOptimizer(lr, beta1, beta2, epsilon)


def _halving(step):
    return 0.1 * tf.pow(0.5, tf.cast(step, tf.float32) / 5.0)


def _halving_adam(lr):
    """TensorFlow's, with a rate that depends on the number of its steps."""
    step = tf.Variable(0, dtype=tf.int64)
    optimizer = _adam(lambda: _halving(step))
    finish = optimizer._finish

    def count(update_ops, name_scope):
        with tf.control_dependencies(update_ops):
            counted = step.assign_add(1).op
        return finish([*update_ops, counted], name_scope)

    optimizer._finish = count
    return optimizer


# sok.optimizers.Adam, and TensorFlow's optimizer that it is.
ADAMS = {
    "default": (sok.optimizers.Adam, _adam),
    "arguments": (
        lambda lr: sok.optimizers.Adam(learning_rate=lr, beta_1=0.7, beta_2=tf.constant(0.9), epsilon=1e-3),
        lambda lr: _adam(lr, 0.7, 0.9, 1e-3),
    ),
    "function": (lambda lr: sok.optimizers.Adam(lambda: 2 * lr), lambda lr: _adam(2 * lr)),
    "function of the step": (lambda lr: sok.optimizers.Adam(_halving), _halving_adam),
    "keras schedule": (
        lambda lr: sok.optimizers.Adam(
            tf.keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=5, decay_rate=0.5)
        ),
        _halving_adam,
    ),
}


@pytest.mark.parametrize("name", ADAMS)
def test_adam_is_tensorflows(name):
    assert optimizer_parity.worst_deviation(*ADAMS[name]) < 5e-6


@pytest.mark.parametrize(
    "clip", [{"clipvalue": 0.01}, {"clipnorm": 0.02}, *([] if _IS_1 else [{"global_clipnorm": 0.05}])]
)
def test_clipping_of_keras_optimizers_acts(clip):
    # The norm of a table's gradient is computed after summing per row. TensorFlow does not sum the gradients
    # of repeated ids first. Both agree for distinct ids.
    fed = optimizer_parity.batches_and_rates(distinct=True)
    deviation = optimizer_parity.worst_deviation(lambda lr: legacy.Adagrad(lr, **clip), fed=fed)
    unclipped = optimizer_parity.worst_deviation(
        lambda lr: legacy.Adagrad(lr, **clip), lambda lr: legacy.Adagrad(lr), fed=fed
    )
    assert deviation < 5e-6 < unclipped
