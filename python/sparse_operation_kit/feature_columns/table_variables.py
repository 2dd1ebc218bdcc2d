"""Embedding variables in the place of the variables that TensorFlow makes for columns."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.core.initialize import ready_graph
from sparse_operation_kit.core.row_policies import InitializerOption
from sparse_operation_kit.core.table_device import table_device


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """What a column's embedding variable is made from.

    Attributes:
      column: The column's name, for errors.
      dim: Floats of a row.
      initializer: The embedding column's.
      options: The `ev_option` of the categorical column, or None.
      initializer_first: Whether `initializer` goes before that of the options.
    """

    column: str
    dim: int
    initializer: Any
    options: Any
    initializer_first: bool = False


@contextlib.contextmanager
def making_tables(spec: TableSpec) -> Iterator[None]:
    """Inside it, variables that TensorFlow or Keras make are embedding variables as `spec` says.

    Names, variable scopes, reuse and collections are TensorFlow's; the partitioner of a variable scope is
    ignored, as tables are spread over ranks by key.

    Raises:
      ValueError: The variable scope has a regularizer or a constraint.
    """
    scope = tf.compat.v1.get_variable_scope()
    for what in ("regularizer", "constraint"):
        if getattr(scope, what) is not None:
            raise ValueError(
                f"Column '{spec.column}': variable scope '{scope.name}' has a {what}, which needs a dense "
                "value; an embedding variable has none"
            )
    partitioner = scope.partitioner
    scope.set_partitioner(None)

    def create(next_creator: Any, **kwargs: Any) -> EmbeddingVariable:
        del next_creator
        return _create(spec, **kwargs)

    try:
        with tf.compat.v1.variable_creator_scope(create):
            yield
    finally:
        scope.set_partitioner(partitioner)


def check_table(spec: TableSpec, variable: Any) -> EmbeddingVariable:
    """Returns `variable`, which TensorFlow has found or made for a column, where it is what `spec` says.

    Raises:
      ValueError: It is no embedding variable, or one of another dimension or of other options.
    """
    if not isinstance(variable, EmbeddingVariable):
        raise ValueError(
            f"Column '{spec.column}' needs an embedding variable, but there is a variable of that name that "
            f"is none: {variable!r}"
        )
    if variable.dim != spec.dim:
        raise ValueError(
            f"Column '{spec.column}' of dimension {spec.dim} cannot share embedding variable "
            f"'{variable.m_var_name}' of dimension {variable.dim}"
        )
    made_from = getattr(variable, "_column_spec", None)
    if made_from is not None and _options(made_from.options) != _options(spec.options):
        raise ValueError(
            f"Column '{spec.column}' has other options than column '{made_from.column}', with which it "
            f"shares embedding variable '{variable.m_var_name}': {_options(spec.options)} and "
            f"{_options(made_from.options)}"
        )
    return variable


def _create(
    spec: TableSpec,
    name: str,
    trainable: bool | None = True,
    collections: Any = None,
    **ignored: Any,
) -> EmbeddingVariable:
    del ignored
    init, admission, eviction = _options(spec.options)
    # By keyword, since TensorFlow takes what comes by position for its own variables' arguments.
    # Outside of conditionals, as TensorFlow makes variables.
    with tf.init_scope(), table_device():
        ready_graph()
        variable = EmbeddingVariable(
            name=name,
            dim=spec.dim,
            initializer=_initializer(spec, init),
            trainable=trainable is None or trainable,
            admission=admission,
            eviction=eviction,
        )
    # Keras and TensorFlow give what is theirs, MODEL_VARIABLES for one; the others the variable knows itself.
    own = (tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    ops.add_to_collections([name for name in collections or [] if name not in own], variable)
    variable._column_spec = spec
    return variable


def _initializer(spec: TableSpec, option: InitializerOption | None) -> InitializerOption:
    of_column = spec.initializer() if inspect.isclass(spec.initializer) else spec.initializer
    if option is None:
        return InitializerOption(of_column)
    if option.initializer is None or spec.initializer_first:
        return dataclasses.replace(option, initializer=of_column)
    return option


def _options(options: Any) -> tuple[Any, Any, Any]:
    """(init_option, filter_option, evict_option)."""
    if options is None:
        return None, None, None
    return options.init_option, options.filter_option, options.evict_option
