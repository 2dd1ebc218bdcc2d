"""What legacy Keras optimizers (those of Keras 2 that were the default up to TensorFlow 2.10) do to a table.

Each rule reads the coefficients that the optimizer's own `_prepare` has made for float32 variables: the
learning rate with its decay or schedule, and the tensors of the other arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers.table_update import TableUpdate

Coefficients = Mapping[str, tf.Tensor]


def sgd(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of SGD, with momentum or without."""
    if not optimizer._momentum:
        return TableUpdate("sgd", (coefficients["lr_t"],))
    kernel = "keras_nesterov" if optimizer.nesterov else "keras_momentum"
    return TableUpdate(kernel, (coefficients["lr_t"], coefficients["momentum"]))


def adagrad(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adagrad, with its epsilon beside the root."""
    return TableUpdate(
        "adagrad", (coefficients["lr_t"], optimizer._initial_accumulator_value, coefficients["epsilon"])
    )


def rmsprop(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of RMSprop; without momentum its means decay for every row."""
    suffix = "_centered" if optimizer.centered else ""
    learning_rate, rho, epsilon = (coefficients[name] for name in ("lr_t", "rho", "epsilon"))
    if not optimizer._momentum:
        return TableUpdate("keras_rmsprop" + suffix, (learning_rate, rho, epsilon))
    # With momentum Keras runs the op that tf.compat.v1.train runs, but starts its mean square from zero.
    initial_mean_square = 0.0
    return TableUpdate(
        "rmsprop" + suffix, (learning_rate, rho, coefficients["momentum"], epsilon, initial_mean_square)
    )


def ftrl(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Ftrl."""
    return TableUpdate(
        "ftrl",
        (
            coefficients["lr_t"],
            coefficients["learning_rate_power"],
            optimizer._initial_accumulator_value,
            coefficients["l1_regularization_strength"],
            coefficients["l2_regularization_strength"],
            coefficients["l2_shrinkage_regularization_strength"],
            coefficients["beta"],
        ),
    )


def adam(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adam, which moves every row."""
    if optimizer.amsgrad:
        raise ValueError(
            f"Keras Adam '{optimizer._name}' with amsgrad=True cannot train embedding variables: tables"
            " keep no maximum of the second moment"
        )
    return TableUpdate(
        "adam",
        (coefficients["lr"], coefficients["beta_1_t"], coefficients["beta_2_t"], coefficients["epsilon"]),
    )


def adadelta(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adadelta; it touches the rows of the batch only."""
    return TableUpdate("adadelta", (coefficients["lr_t"], coefficients["rho"], coefficients["epsilon"]))


def adamax(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adamax; it touches the rows of the batch only."""
    return TableUpdate(
        "adamax",
        (
            -coefficients["neg_scaled_lr"],
            coefficients["beta_1_t"],
            coefficients["beta_2_t"],
            coefficients["epsilon"],
        ),
    )


def nadam(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Nadam, whose moments decay for every row, while weights move for the batch's only."""
    gradient_weight = coefficients["one_minus_m_t"] / coefficients["one_minus_m_schedule_new"]
    moment_weight = coefficients["m_t_1"] / coefficients["one_minus_m_schedule_next"]
    return TableUpdate(
        "nadam",
        (
            coefficients["lr_t"],
            coefficients["beta_1_t"],
            coefficients["beta_2_t"],
            coefficients["epsilon"],
            gradient_weight,
            moment_weight,
            coefficients["v_t_prime_denominator"],
        ),
    )
