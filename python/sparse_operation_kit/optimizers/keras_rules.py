"""What legacy Keras optimizers (those of Keras 2 that were the default up to TensorFlow 2.10) do to a table.

Each function reads the coefficients that the optimizer's own `_prepare` has made for float32 variables: the
learning rate with its decay or schedule, and the tensors of the other arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.optimizers.known_optimizer import KnownOptimizer, of_keras
from sparse_operation_kit.optimizers.table_update import TableUpdate

Coefficients = Mapping[str, tf.Tensor]


def sgd(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of SGD, with momentum or without."""
    if not optimizer._momentum:
        return TableUpdate("sgd", {"learning_rate": coefficients["lr_t"]})
    return TableUpdate(
        "keras_nesterov" if optimizer.nesterov else "keras_momentum",
        {"learning_rate": coefficients["lr_t"], "momentum": coefficients["momentum"]},
    )


def adagrad(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adagrad, with its epsilon beside the root."""
    return TableUpdate(
        "adagrad",
        {
            "learning_rate": coefficients["lr_t"],
            "initial_accumulator": optimizer._initial_accumulator_value,
            "epsilon": coefficients["epsilon"],
        },
    )


def rmsprop(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of RMSprop; without momentum its means decay for every row."""
    suffix = "_centered" if optimizer.centered else ""
    hyper = {
        "learning_rate": coefficients["lr_t"],
        "rho": coefficients["rho"],
        "epsilon": coefficients["epsilon"],
    }
    if not optimizer._momentum:
        return TableUpdate("keras_rmsprop" + suffix, hyper)
    # With momentum Keras runs the op that tf.compat.v1.train runs, but starts its mean square from zero.
    return TableUpdate("rmsprop" + suffix, {**hyper, "momentum": coefficients["momentum"], "initial_ms": 0.0})


def ftrl(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Ftrl."""
    return TableUpdate(
        "ftrl",
        {
            "learning_rate": coefficients["lr_t"],
            "learning_rate_power": coefficients["learning_rate_power"],
            "initial_accumulator": optimizer._initial_accumulator_value,
            "l1": coefficients["l1_regularization_strength"],
            "l2": coefficients["l2_regularization_strength"],
            "l2_shrinkage": coefficients["l2_shrinkage_regularization_strength"],
            "beta": coefficients["beta"],
        },
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
        {
            "alpha": coefficients["lr"],
            "beta1": coefficients["beta_1_t"],
            "beta2": coefficients["beta_2_t"],
            "epsilon": coefficients["epsilon"],
        },
    )


def adadelta(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adadelta; it touches the rows of the batch only."""
    return TableUpdate(
        "adadelta",
        {
            "learning_rate": coefficients["lr_t"],
            "rho": coefficients["rho"],
            "epsilon": coefficients["epsilon"],
        },
    )


def adamax(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adamax; it touches the rows of the batch only."""
    return TableUpdate(
        "adamax",
        {
            "alpha": -coefficients["neg_scaled_lr"],
            "beta1": coefficients["beta_1_t"],
            "beta2": coefficients["beta_2_t"],
            "epsilon": coefficients["epsilon"],
        },
    )


def nadam(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Nadam, whose moments decay for every row, while weights move for the batch's only."""
    return TableUpdate(
        "nadam",
        {
            "learning_rate": coefficients["lr_t"],
            "beta1": coefficients["beta_1_t"],
            "beta2": coefficients["beta_2_t"],
            "epsilon": coefficients["epsilon"],
            "gradient_weight": coefficients["one_minus_m_t"] / coefficients["one_minus_m_schedule_new"],
            "moment_weight": coefficients["m_t_1"] / coefficients["one_minus_m_schedule_next"],
            "v_correction": coefficients["v_t_prime_denominator"],
        },
    )


def entries() -> list[KnownOptimizer]:
    """The entries of the legacy optimizers of every Keras at hand."""
    known: tuple[tuple[Any, ...], ...] = (
        (
            "SGD",
            sgd,
            {
                "sgd": {},
                "keras_momentum": {"momentum": 0.9},
                "keras_nesterov": {"momentum": 0.8, "nesterov": True},
            },
            {},
        ),
        ("Adagrad", adagrad, {"adagrad": {}}, {}),
        (
            "RMSprop",
            rmsprop,
            {
                "keras_rmsprop": {},
                "keras_rmsprop_centered": {"rho": 0.8, "epsilon": 1e-2, "centered": True},
                "rmsprop": {"momentum": 0.5, "epsilon": 1e-3},
                "rmsprop_centered": {"momentum": 0.5, "epsilon": 1e-2, "centered": True},
            },
            {},
        ),
        (
            "Ftrl",
            ftrl,
            {"ftrl": {"l1_regularization_strength": 0.01, "l2_shrinkage_regularization_strength": 0.03}},
            {},
        ),
        ("Adam", adam, {"adam": {}}, {}),
        (
            "Adadelta",
            adadelta,
            {"adadelta": {"epsilon": 0.1}},
            {"accum_grad": "accumulator", "accum_var": "accumulated_update"},
        ),
        ("Adamax", adamax, {"adamax": {}}, {}),
        ("Nadam", nadam, {"nadam": {}}, {}),
    )
    return [
        of_keras(f"{namespace}.{name}", getattr(module, name), update, rules, slots=slots)
        for namespace, module in compat.legacy_keras_optimizers()
        for name, update, rules, slots in known
    ]
