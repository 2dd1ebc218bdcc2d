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


def known_or_none(optimizer: Any) -> KnownOptimizer | None:
    """Returns the entry whose arithmetic `optimizer` has; None if there is none."""
    entry, changed = _entry_of(optimizer)
    return None if changed else entry


def find_known(optimizer: Any, variable: tf.Variable) -> KnownOptimizer:
    """Returns the entry with which `optimizer` trains the embedding variable `variable`.

    Raises:
      TypeError: if there is no entry, or a subclass overrides update methods of a known class.
    """
    entry, changed = _entry_of(optimizer)
    who = f"{_describe(optimizer)} cannot train embedding variable '{variable.m_var_name}'"
    if entry is None:
        raise TypeError(f"{who}. {_known_names()}")
    if changed:
        raise TypeError(f"{who}: it changes {', '.join(changed)} of {entry.public_name}. {_known_names()}")
    return entry


def _entry_of(optimizer: Any) -> tuple[KnownOptimizer | None, list[str]]:
    """The entry of an optimizer's class or of its nearest base, and its methods that subclasses override."""
    entries = {entry.cls: entry for entry in known_optimizers()}
    classes = type(optimizer).__mro__
    for depth, cls in enumerate(classes):
        if cls in entries:
            methods = entries[cls].update_methods
            changed = {name for subclass in classes[:depth] for name in methods if name in vars(subclass)}
            return entries[cls], sorted(changed)
    return None, []


def _describe(optimizer: Any) -> str:
    return f"Optimizer {type(optimizer).__module__}.{type(optimizer).__name__}"


def _known_names() -> str:
    return "These can: " + ", ".join(entry.public_name for entry in known_optimizers())
