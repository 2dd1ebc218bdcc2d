"""The table updates of legacy Keras optimizers (those of Keras 2, the default up to TensorFlow 2.10).

Each function reads the coefficients that the optimizer's own `_prepare` computed for float32 variables: the
learning rate with its decay or schedule, and the tensors of the other arguments.
"""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.optimizers.known_optimizer import KnownOptimizer, of_keras
from sparse_operation_kit.optimizers.table_update import TableUpdate

Coefficients = Mapping[str, tf.Tensor]


def sgd(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of SGD, with or without momentum."""
    if not optimizer._momentum:
        return TableUpdate("sgd", {"learning_rate": coefficients["lr_t"]})
    return TableUpdate(
        "keras_nesterov" if optimizer.nesterov else "keras_momentum",
        {"learning_rate": coefficients["lr_t"], "momentum": coefficients["momentum"]},
    )


def adagrad(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adagrad; epsilon is added to the square root."""
    return TableUpdate(
        "adagrad",
        {
            "learning_rate": coefficients["lr_t"],
            "initial_accumulator": optimizer._initial_accumulator_value,
            "epsilon": coefficients["epsilon"],
        },
    )


def _of_means(coefficients: Coefficients) -> dict[str, tf.Tensor]:
    """Returns the hyper-parameters that RMSprop and Adadelta have."""
    return {
        "learning_rate": coefficients["lr_t"],
        "rho": coefficients["rho"],
        "epsilon": coefficients["epsilon"],
    }


def rmsprop(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of RMSprop; without momentum the means of every row decay."""
    suffix = "_centered" if optimizer.centered else ""
    hyper = _of_means(coefficients)
    if not optimizer._momentum:
        return TableUpdate("keras_rmsprop" + suffix, hyper)
    # With momentum Keras uses the same op as tf.compat.v1.train, but its mean square starts at zero.
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
            # Keras of 1.15 has no beta.
            "beta": coefficients.get("beta", 0.0),
        },
    )


def _of_moments(coefficients: Coefficients) -> dict[str, tf.Tensor]:
    """Returns the hyper-parameters that Adam and its variants have besides their rates."""
    return {
        "beta1": coefficients["beta_1_t"],
        "beta2": coefficients["beta_2_t"],
        "epsilon": coefficients["epsilon"],
    }


def adam(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adam, which updates every row."""
    if optimizer.amsgrad:
        raise ValueError(
            f"Keras Adam '{optimizer._name}' with amsgrad=True cannot train embedding variables: tables"
            " keep no maximum of the second moment"
        )
    return TableUpdate("adam", {"alpha": coefficients["lr"], **_of_moments(coefficients)})


def adadelta(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adadelta, which updates only the rows of the batch."""
    return TableUpdate("adadelta", _of_means(coefficients))


def adamax(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Adamax, which updates only the rows of the batch."""
    return TableUpdate("adamax", {"alpha": -coefficients["neg_scaled_lr"], **_of_moments(coefficients)})


def nadam(optimizer: Any, coefficients: Coefficients) -> TableUpdate:
    """The step of Nadam: the moments of every row decay, but only the weights of the batch's rows change."""
    return TableUpdate(
        "nadam",
        {
            "learning_rate": coefficients["lr_t"],
            **_of_moments(coefficients),
            "gradient_weight": coefficients["one_minus_m_t"] / coefficients["one_minus_m_schedule_new"],
            "moment_weight": coefficients["m_t_1"] / coefficients["one_minus_m_schedule_next"],
            "v_correction": coefficients["v_t_prime_denominator"],
        },
    )


def entries() -> list[KnownOptimizer]:
    """Returns the entries of the legacy optimizers of all installed Keras modules."""
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
