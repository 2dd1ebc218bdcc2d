"""What the library knows of an optimizer class that can train embedding variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

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
    """An optimizer class that can train embedding variables: its entry in the registry.

    Attributes:
      public_name: how users know the class.
      cls: the class.
      update: gives the TableUpdate of a step. That of a tf.compat.v1 optimizer takes the optimizer, that of a
        Keras one the optimizer and its coefficients.
      update_methods: the methods that make up the class's arithmetic.
      rules: the engine's rules that it trains tables by and, for each, the arguments beside the learning rate
        that ask for it. Functions among them are called, in the graph that the optimizer is made for.
      slots: names of the class's slots on ordinary variables that the engine has other names for, with the
        engine's.
      create_shared_state: makes the variables beside the slots (step counters) when a step has embedding
        variables only; takes the optimizer and those variables.
      differs_by_table: whether tables have hyper-parameters of their own in a step; `update` then takes the
        optimizer and a table.
    """

    public_name: str
    cls: type
    update: Callable
    update_methods: tuple[str, ...]
    rules: Mapping[str, Mapping[str, Any]]
    slots: Mapping[str, str] = dataclasses.field(default_factory=dict)
    create_shared_state: Callable[[Any, Sequence[tf.Variable]], None] = _no_shared_state
    differs_by_table: bool = False

    def make(self, rule: str, learning_rate: float | tf.Tensor) -> Any:
        """An optimizer of the class that trains tables by `rule`."""
        given = {name: value() if callable(value) else value for name, value in self.rules[rule].items()}
        return self.cls(learning_rate=learning_rate, **given)


def of_v1(
    public_name: str, cls: type, update: Callable, rules: Mapping[str, Mapping[str, Any]], **more: Any
) -> KnownOptimizer:
    """The entry of a subclass of tf.compat.v1.train.Optimizer; `more` are further attributes."""
    return KnownOptimizer(public_name, cls, update, _V1_UPDATE_METHODS, rules, **more)


def of_keras(
    public_name: str, cls: type, update: Callable, rules: Mapping[str, Mapping[str, Any]], **more: Any
) -> KnownOptimizer:
    """The entry of a legacy Keras optimizer; `more` are further attributes."""
    return KnownOptimizer(public_name, cls, update, _KERAS_UPDATE_METHODS, rules, **more)
