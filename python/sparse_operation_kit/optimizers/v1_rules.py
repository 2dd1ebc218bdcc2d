"""What the optimizers of tf.compat.v1.train do to a table.

Each rule reads the tensors that the optimizer's own `_prepare` has just made of its arguments, so numbers,
tensors and callables all reach the kernel as they reach TensorFlow's ops.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit.optimizers.table_update import TableUpdate

_train = tf.compat.v1.train


def sgd(optimizer: _train.GradientDescentOptimizer) -> TableUpdate:
    """The step of gradient descent."""
    return TableUpdate("sgd", (optimizer._learning_rate_tensor,))


def momentum(optimizer: _train.MomentumOptimizer) -> TableUpdate:
    """The step of momentum, Nesterov's or the plain one."""
    kernel = "nesterov" if optimizer._use_nesterov else "momentum"
    return TableUpdate(kernel, (optimizer._learning_rate_tensor, optimizer._momentum_tensor))


def adagrad(optimizer: _train.AdagradOptimizer) -> TableUpdate:
    """The step of Adagrad, whose root has no epsilon here."""
    no_epsilon = 0.0
    return TableUpdate(
        "adagrad", (optimizer._learning_rate_tensor, optimizer._initial_accumulator_value, no_epsilon)
    )


def rmsprop(optimizer: _train.RMSPropOptimizer) -> TableUpdate:
    """The step of RMSProp, centered or not; it touches the rows of the batch only."""
    kernel = "rmsprop_centered" if optimizer._centered else "rmsprop"
    initial_mean_square = 1.0
    return TableUpdate(
        kernel,
        (
            optimizer._learning_rate_tensor,
            optimizer._decay_tensor,
            optimizer._momentum_tensor,
            optimizer._epsilon_tensor,
            initial_mean_square,
        ),
    )


def adadelta(optimizer: _train.AdadeltaOptimizer) -> TableUpdate:
    """The step of Adadelta; it touches the rows of the batch only."""
    return TableUpdate("adadelta", (optimizer._lr_t, optimizer._rho_t, optimizer._epsilon_t))


def ftrl(optimizer: _train.FtrlOptimizer) -> TableUpdate:
    """The step of FTRL with its shrinkage and beta."""
    return TableUpdate(
        "ftrl",
        (
            optimizer._learning_rate_tensor,
            optimizer._learning_rate_power_tensor,
            optimizer._initial_accumulator_value,
            optimizer._l1_regularization_strength_tensor,
            optimizer._l2_regularization_strength,
            optimizer._l2_shrinkage_regularization_strength_tensor,
            optimizer._beta,
        ),
    )


def adam(optimizer: _train.AdamOptimizer) -> TableUpdate:
    """The step of Adam, which moves every row."""
    return TableUpdate("adam", _adam_hyper(optimizer))


def lazy_adam(optimizer: _train.AdamOptimizer) -> TableUpdate:
    """The step of Adam on the rows of the batch only."""
    return TableUpdate("lazy_adam", _adam_hyper(optimizer))


def create_beta_powers(optimizer: _train.AdamOptimizer, variables: Sequence[tf.Variable]) -> None:
    """The step counters that TensorFlow's Adam makes with its slots, where there are no slots to make."""
    first = min(variables, key=lambda variable: variable.name)
    for name, beta in (("beta1_power", optimizer._beta1), ("beta2_power", optimizer._beta2)):
        optimizer._create_non_slot_variable(initial_value=beta, name=name, colocate_with=first)


def _adam_hyper(optimizer: _train.AdamOptimizer) -> tuple:
    # In float32 and in this order, as TensorFlow's kernel has it. The powers are those before this step's
    # `_finish` moves them on, since that waits for all updates.
    beta1_power, beta2_power = (tf.cast(power, tf.float32) for power in optimizer._get_beta_accumulators())
    learning_rate = tf.cast(optimizer._lr_t, tf.float32)
    alpha = learning_rate * tf.sqrt(1.0 - beta2_power) / (1.0 - beta1_power)
    return (alpha, optimizer._beta1_t, optimizer._beta2_t, optimizer._epsilon_t)
