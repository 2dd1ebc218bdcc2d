"""The optimizers that can train embedding variables, and what each does to a table.

One entry per optimizer class. A subclass is as good as its known base as long as it leaves the base's
updates alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.optimizers import keras_rules, v1_rules
from sparse_operation_kit.optimizers.adagrad_decay import AdagradDecayOptimizer, adagrad_decay
from sparse_operation_kit.optimizers.adam import Adam
from sparse_operation_kit.optimizers.adam_async import AdamAsyncOptimizer, adam_async
from sparse_operation_kit.optimizers.rowwise_adagrad import RowWiseAdagrad, rowwise_adagrad
from sparse_operation_kit.tf.keras.optimizers.lazy_adam import LazyAdamOptimizer

_V1_UPDATE_METHODS = (
    "_apply_dense",
    "_apply_sparse",
    "_apply_sparse_duplicate_indices",
    "_apply_sparse_shared",
    "_create_slots",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)
_KERAS_UPDATE_METHODS = (
    "_create_slots",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)


def _no_shared_state(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    del optimizer, variables


@dataclasses.dataclass(frozen=True)
class KnownOptimizer:
    """An optimizer class that has a kernel.

    Attributes:
      public_name: how users know the class.
      cls: the class.
      rule: gives the TableUpdate of a step. Rules of tf.compat.v1 optimizers take the optimizer, those of
        Keras ones the optimizer and its coefficients.
      differs_by_table: whether tables have hyper-parameters of their own in a step; the rule then takes the
        optimizer and a table.
      update_methods: the methods that make up the class's arithmetic.
      create_shared_state: makes the variables beside the slots (step counters) when a step has embedding
        variables only; takes the optimizer and those variables.
    """

    public_name: str
    cls: type
    rule: Callable
    update_methods: tuple[str, ...]
    create_shared_state: Callable[[Any, Sequence[tf.Variable]], None] = _no_shared_state
    differs_by_table: bool = False


def _v1(public_name: str, cls: type, rule: Callable, create_shared_state: Callable = _no_shared_state):
    return KnownOptimizer(public_name, cls, rule, _V1_UPDATE_METHODS, create_shared_state)


def _keras_entries() -> list[KnownOptimizer]:
    rules = {
        "SGD": keras_rules.sgd,
        "Adagrad": keras_rules.adagrad,
        "RMSprop": keras_rules.rmsprop,
        "Ftrl": keras_rules.ftrl,
        "Adam": keras_rules.adam,
        "Adadelta": keras_rules.adadelta,
        "Adamax": keras_rules.adamax,
        "Nadam": keras_rules.nadam,
    }
    return [
        KnownOptimizer(f"{namespace}.{name}", getattr(module, name), rule, _KERAS_UPDATE_METHODS)
        for namespace, module in compat.legacy_keras_optimizers()
        for name, rule in rules.items()
    ]


@functools.cache
def known_optimizers() -> tuple[KnownOptimizer, ...]:
    """Every optimizer that can train embedding variables with the TensorFlow at hand."""
    train = tf.compat.v1.train
    prefix = "tf.compat.v1.train."
    return (
        _v1(prefix + "GradientDescentOptimizer", train.GradientDescentOptimizer, v1_rules.sgd),
        _v1(prefix + "MomentumOptimizer", train.MomentumOptimizer, v1_rules.momentum),
        _v1(prefix + "AdagradOptimizer", train.AdagradOptimizer, v1_rules.adagrad),
        _v1(prefix + "RMSPropOptimizer", train.RMSPropOptimizer, v1_rules.rmsprop),
        _v1(prefix + "AdadeltaOptimizer", train.AdadeltaOptimizer, v1_rules.adadelta),
        _v1(prefix + "FtrlOptimizer", train.FtrlOptimizer, v1_rules.ftrl),
        _v1(prefix + "AdamOptimizer", train.AdamOptimizer, v1_rules.adam, v1_rules.create_beta_powers),
        _v1("sok.optimizers.Adam", Adam, v1_rules.adam, v1_rules.create_beta_powers),
        _v1("sok.optimizers.AdagradDecayOptimizer", AdagradDecayOptimizer, adagrad_decay),
        dataclasses.replace(
            _v1("sok.optimizers.AdamAsyncOptimizer", AdamAsyncOptimizer, adam_async), differs_by_table=True
        ),
        _v1("sok.optimizers.RowWiseAdagrad", RowWiseAdagrad, rowwise_adagrad),
        _v1(
            "sok.tf.keras.optimizers.LazyAdamOptimizer",
            LazyAdamOptimizer,
            v1_rules.lazy_adam,
            v1_rules.create_beta_powers,
        ),
        *_keras_entries(),
    )


def find_known(optimizer: Any, variable: tf.Variable) -> KnownOptimizer:
    """The entry by which `optimizer` trains the embedding variable `variable`.

    Raises:
      TypeError: if there is none, or if a subclass changes the updates of a known class.
    """
    entries = {entry.cls: entry for entry in known_optimizers()}
    classes = type(optimizer).__mro__
    for depth, cls in enumerate(classes):
        if cls not in entries:
            continue
        entry = entries[cls]
        changed = sorted(
            {name for subclass in classes[:depth] for name in entry.update_methods if name in vars(subclass)}
        )
        if not changed:
            return entry
        raise TypeError(
            f"{_describe(optimizer)} cannot train embedding variable '{variable.m_var_name}': it changes"
            f" {', '.join(changed)} of {entry.public_name}. {_known_names()}"
        )
    raise TypeError(
        f"{_describe(optimizer)} cannot train embedding variable '{variable.m_var_name}'. {_known_names()}"
    )


def _describe(optimizer: Any) -> str:
    return f"Optimizer {type(optimizer).__module__}.{type(optimizer).__name__}"


def _known_names() -> str:
    return "These can: " + ", ".join(entry.public_name for entry in known_optimizers())
