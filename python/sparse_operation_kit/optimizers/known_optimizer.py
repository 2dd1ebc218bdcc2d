"""KnownOptimizer: the description of an optimizer class that can train embedding variables; its methods."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """The registry entry of an optimizer class that can train embedding variables.

    Attributes:
      public_name: the public name of the class.
      cls: the class.
      update: returns the TableUpdate of a step. For a tf.compat.v1 optimizer it takes the optimizer, for a
        Keras optimizer the optimizer and its coefficients.
      update_methods: the methods that implement the class's arithmetic.
      rules: the engine's rules that the class can use. Each maps to the constructor arguments, besides the
        learning rate, that select the rule. Values that are functions are called when an optimizer is made,
        in the default graph.
      slots: maps names of the class's slots on ordinary variables to the engine's names, where they differ.
      create_shared_state: creates the variables other than slots (step counters) if a step has only
        embedding variables, or if they may be on a GPU; takes the optimizer and those variables.
      differs_by_table: whether the hyper-parameters of a step differ between tables; `update` then takes the
        optimizer, a table and its gradient.
      for_tables_only: whether `update` takes embedding variables only, and no dense tables of TensorFlow's.
      row_rules: maps rules to those that take their place, with the same hyper-parameters, in tables with
        `row_arithmetic`.
    """

    public_name: str
    cls: type
    update: Callable
    update_methods: tuple[str, ...]
    rules: Mapping[str, Mapping[str, Any]]
    slots: Mapping[str, str] = dataclasses.field(default_factory=dict)
    create_shared_state: Callable[[Any, Sequence[tf.Variable]], None] = _no_shared_state
    differs_by_table: bool = False
    for_tables_only: bool = False
    row_rules: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def rule_for(self, rule: str, variable: tf.Variable) -> str:
        """Returns the rule that trains an embedding variable where the class asks for `rule`."""
        return self.row_rules.get(rule, rule) if variable.row_arithmetic else rule

    def make(self, rule: str, learning_rate: float | tf.Tensor) -> Any:
        """Creates an optimizer of the class that trains tables by `rule`."""
        given = {name: value() if callable(value) else value for name, value in self.rules[rule].items()}
        return self.cls(learning_rate=learning_rate, **given)


def of_v1(
    public_name: str, cls: type, update: Callable, rules: Mapping[str, Mapping[str, Any]], **more: Any
) -> KnownOptimizer:
    """Returns the entry of a subclass of tf.compat.v1.train.Optimizer; `more` are further attributes."""
    return KnownOptimizer(public_name, cls, update, _V1_UPDATE_METHODS, rules, **more)


def of_keras(
    public_name: str, cls: type, update: Callable, rules: Mapping[str, Mapping[str, Any]], **more: Any
) -> KnownOptimizer:
    """Returns the entry of a legacy Keras optimizer; `more` are further attributes."""
    return KnownOptimizer(public_name, cls, update, _KERAS_UPDATE_METHODS, rules, **more)


@contextlib.contextmanager
def shadow_methods(target: Any, **methods: Callable) -> Iterator[None]:
    """Returns a context in which the methods of the object `target` are replaced by the given functions.

    Instance attributes of the same names are restored at the end. Bypasses `__setattr__`, which Keras
    optimizers override for their hyper-parameters.
    """
    attributes = vars(target)
    before = {name: attributes[name] for name in methods if name in attributes}
    attributes.update(methods)
    try:
        yield
    finally:
        for name in methods:
            del attributes[name]
        attributes.update(before)
