"""Creates embedding variables instead of the variables that TensorFlow creates for columns."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes.dialect import dialect
from sparse_operation_kit.compat.internals import ops
from sparse_operation_kit.ranks.initialize import ready_graph
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.row_policies import InitializerOption
from sparse_operation_kit.tables.table_device import table_device


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """The specification of a column's embedding variable.

    Attributes:
      column: The column's name, for error messages.
      dim: Number of floats in a row.
      initializer: The initializer of the embedding column.
      options: The `ev_option` of the categorical column, or None.
      initializer_first: Whether `initializer` has precedence over the initializer in the options.
    """

    column: str
    dim: int
    initializer: Any
    options: Any
    initializer_first: bool = False


@contextlib.contextmanager
def making_tables(spec: TableSpec) -> Iterator[None]:
    """Returns a context in which TensorFlow and Keras create embedding variables as in `spec`.

    Names, variable scopes, reuse and collections work as in TensorFlow. The partitioner of a variable scope
    is ignored, because tables are sharded over ranks by key.

    Raises:
      ValueError: The variable scope has a regularizer or a constraint.
    """
    scope = tf.compat.v1.get_variable_scope()
    for what in ("regularizer", "constraint"):
        if getattr(scope, what) is not None:
            raise ValueError(
                f"Column '{spec.column}': variable scope '{scope.name}' has a {what}, which needs a dense "
                "value; an embedding variable has no dense value"
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


def create_state(state_manager: Any, column: Any, name: str, shape: Sequence[int], initializer: Any) -> None:
    """Creates a variable of a column for a `DenseFeatures`."""
    state_manager.create_variable(
        column,
        name=name,
        shape=shape,
        dtype=tf.float32,
        trainable=column.trainable,
        use_resource=True,
        initializer=initializer,
    )


def check_table(spec: TableSpec, variable: Any) -> EmbeddingVariable:
    """Checks that the variable that TensorFlow found or created for a column matches `spec`, and returns it.

    Raises:
      ValueError: It is not an embedding variable, or it has another dimension or other options.
    """
    if not isinstance(variable, EmbeddingVariable):
        raise ValueError(
            f"Column '{spec.column}' needs an embedding variable, but the variable of that name is not one: "
            f"{variable!r}"
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
    init, arguments = _options(spec.options)
    # Keyword arguments, because TensorFlow interprets positional arguments as those of its own variables.
    # Outside conditionals, as TensorFlow creates variables.
    with tf.init_scope(), table_device():
        ready_graph()
        variable = EmbeddingVariable(
            name=name,
            dim=spec.dim,
            initializer=_initializer(spec, init),
            trainable=trainable is None or trainable,
            row_arithmetic=dialect().uses_row_arithmetic(),
            **arguments,
        )
        dialect().add_table(variable)
    # The variable has added itself to its own collections; these are the others, such as MODEL_VARIABLES.
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


def _options(options: Any) -> tuple[InitializerOption | None, dict[str, Any]]:
    """Returns the initial values of an `ev_option` or None, and other arguments of `EmbeddingVariable`."""

    # Options of another class may be older than some attributes.
    def of(name: str, default: Any = None) -> Any:
        return getattr(options, name, default)

    return of("init_option"), {
        "admission": of("filter_option"),
        "eviction": of("evict_option"),
        "memory": of("storage_option") or "device",
        "dtype": of("value_dtype") or tf.float32,
        "slot_dtype": of("slot_dtype", tf.float32),
        "rounding": of("rounding", "stochastic"),
    }
