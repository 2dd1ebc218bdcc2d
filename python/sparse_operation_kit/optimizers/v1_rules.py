"""The table updates of the optimizers of tf.compat.v1.train.

Each function reads the tensors that the optimizer's own `_prepare` has just created from its arguments. So
numbers, tensors and callables have the same values in the kernel as in TensorFlow's ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.optimizers.known_optimizer import KnownOptimizer, of_v1
from sparse_operation_kit.optimizers.table_update import TableUpdate
from sparse_operation_kit.tables.table_device import beside_rows

_train = tf.compat.v1.train


def sgd(optimizer: _train.GradientDescentOptimizer) -> TableUpdate:
    """The step of gradient descent."""
    return TableUpdate("sgd", {"learning_rate": optimizer._learning_rate_tensor})


def momentum(optimizer: _train.MomentumOptimizer) -> TableUpdate:
    """The step of momentum, plain or Nesterov's."""
    return TableUpdate(
        "nesterov" if optimizer._use_nesterov else "momentum",
        {"learning_rate": optimizer._learning_rate_tensor, "momentum": optimizer._momentum_tensor},
    )


def adagrad(optimizer: _train.AdagradOptimizer) -> TableUpdate:
    """The step of Adagrad, without an epsilon."""
    return TableUpdate(
        "adagrad",
        {
            "learning_rate": optimizer._learning_rate_tensor,
            "initial_accumulator": optimizer._initial_accumulator_value,
            "epsilon": 0.0,
        },
    )


def rmsprop(optimizer: _train.RMSPropOptimizer) -> TableUpdate:
    """The step of RMSProp, centered or not, which updates only the rows of the batch."""
    return TableUpdate(
        "rmsprop_centered" if optimizer._centered else "rmsprop",
        {
            "learning_rate": optimizer._learning_rate_tensor,
            "rho": optimizer._decay_tensor,
            "momentum": optimizer._momentum_tensor,
            "epsilon": optimizer._epsilon_tensor,
            "initial_ms": 1.0,
        },
    )


def adadelta(optimizer: _train.AdadeltaOptimizer) -> TableUpdate:
    """The step of Adadelta, which updates only the rows of the batch."""
    return TableUpdate(
        "adadelta",
        {"learning_rate": optimizer._lr_t, "rho": optimizer._rho_t, "epsilon": optimizer._epsilon_t},
    )


def ftrl(optimizer: _train.FtrlOptimizer) -> TableUpdate:
    """The step of FTRL with shrinkage and beta."""
    return TableUpdate(
        "ftrl",
        {
            "learning_rate": optimizer._learning_rate_tensor,
            "learning_rate_power": optimizer._learning_rate_power_tensor,
            "initial_accumulator": optimizer._initial_accumulator_value,
            "l1": optimizer._l1_regularization_strength_tensor,
            "l2": optimizer._l2_regularization_strength,
            "l2_shrinkage": optimizer._l2_shrinkage_regularization_strength_tensor,
            "beta": compat.beta_of_ftrl(optimizer),
        },
    )


def adam(optimizer: _train.AdamOptimizer) -> TableUpdate:
    """The step of Adam, which updates every row."""
    return TableUpdate("adam", adam_hyper(optimizer))


def create_beta_powers(optimizer: _train.AdamOptimizer, variables: Sequence[tf.Variable]) -> None:
    """Creates the step counters, which TensorFlow's Adam creates only together with slots."""
    first = min(variables, key=lambda variable: variable.name)
    for name, beta in (("beta1_power", optimizer._beta1), ("beta2_power", optimizer._beta2)):
        if (name, first.graph) not in optimizer._non_slot_dict:
            with beside_rows([first]):
                power = tf.compat.v1.Variable(beta, trainable=False, name=name, use_resource=True)
            optimizer._non_slot_dict[name, first.graph] = power


def adam_hyper(optimizer: _train.AdamOptimizer) -> dict:
    """Returns the hyper-parameters of a step of Adam, with the bias-corrected learning rate."""
    # Computed in float32 and in this order, as in TensorFlow's kernel. The powers are read before this step's
    # `_finish` updates them, since that waits for all updates.
    beta1_power, beta2_power = (tf.cast(power, tf.float32) for power in optimizer._get_beta_accumulators())
    learning_rate = tf.cast(optimizer._lr_t, tf.float32)
    alpha = learning_rate * tf.sqrt(1.0 - beta2_power) / (1.0 - beta1_power)
    return {
        "alpha": alpha,
        "beta1": optimizer._beta1_t,
        "beta2": optimizer._beta2_t,
        "epsilon": optimizer._epsilon_t,
    }


def entries() -> list[KnownOptimizer]:
    """Returns the entries of the optimizers of tf.compat.v1.train."""
    known: tuple[tuple[Any, ...], ...] = (
        ("GradientDescentOptimizer", sgd, {"sgd": {}}, {}),
        (
            "MomentumOptimizer",
            momentum,
            {"momentum": {"momentum": 0.9}, "nesterov": {"momentum": 0.9, "use_nesterov": True}},
            {},
        ),
        ("AdagradOptimizer", adagrad, {"adagrad": {}}, {}),
        (
            "RMSPropOptimizer",
            rmsprop,
            {
                "rmsprop": {"momentum": 0.5, "epsilon": 1e-3},
                "rmsprop_centered": {"momentum": 0.3, "epsilon": 1e-2, "centered": True},
            },
            {},
        ),
        (
            "AdadeltaOptimizer",
            adadelta,
            {"adadelta": {"epsilon": 0.01}},
            {"slots": {"accum": "accumulator", "accum_update": "accumulated_update"}},
        ),
        (
            "FtrlOptimizer",
            ftrl,
            {"ftrl": {"l1_regularization_strength": 0.01, "l2_shrinkage_regularization_strength": 0.05}},
            {"slots": {"accum": "accumulator"}, "row_rules": {"ftrl": "group_ftrl"}},
        ),
        (
            "AdamOptimizer",
            adam,
            {"adam": {}},
            {"create_shared_state": create_beta_powers, "row_rules": {"adam": "lazy_adam"}},
        ),
    )
    return [
        of_v1(f"tf.compat.v1.train.{name}", getattr(_train, name), update, rules, **more)
        for name, update, rules, more in known
    ]
