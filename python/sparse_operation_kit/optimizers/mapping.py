"""The optimizers that can train embedding variables: one entry per class.

Tests and documentation iterate over the entries. A subclass of a known class works too, unless it overrides
one of the base class's update methods.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers import (
    adagrad_decay,
    adam,
    adam_async,
    adamw,
    keras_rules,
    lazy_adam,
    rowwise_adagrad,
    v1_rules,
)
from sparse_operation_kit.optimizers.known_optimizer import KnownOptimizer


@functools.lru_cache(maxsize=None)
def known_optimizers() -> tuple[KnownOptimizer, ...]:
    """Returns all optimizers that can train embedding variables with the installed TensorFlow."""
    return (
        *v1_rules.entries(),
        adam.ENTRY,
        adagrad_decay.ENTRY,
        adam_async.ENTRY,
        rowwise_adagrad.ENTRY,
        lazy_adam.ENTRY,
        *adamw.ENTRIES,
        *keras_rules.entries(),
    )


def find_known(optimizer: Any, variable: tf.Variable) -> KnownOptimizer:
    """Returns the entry with which `optimizer` trains the embedding variable `variable`.

    Raises:
      TypeError: if there is no entry, or a subclass overrides update methods of a known class.
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
