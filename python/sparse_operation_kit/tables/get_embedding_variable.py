"""get_embedding_variable: DeepRec's function that creates or reuses an embedding variable by name."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes.dialect import dialect
from sparse_operation_kit.compat.internals import variable_scope
from sparse_operation_kit.ranks.initialize import ready_graph
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.row_policies import (
    CBFFilter,
    CounterFilter,
    GlobalStepEvict,
    InitializerOption,
    L2WeightEvict,
)
from sparse_operation_kit.tables.storage_option import StorageOption
from sparse_operation_kit.tables.table_device import table_device

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class EmbeddingVariableOption:
    """DeepRec's options of an embedding variable, with DeepRec's names and order, and three more.

    Attributes:
      ht_type: DeepRec's kind of hash table. Not used: there is only one kind.
      ht_partition_num: DeepRec's number of parts of a hash table. Not used.
      evict_option: Which rows are evicted when a checkpoint is saved: a `GlobalStepEvict`, an `L2WeightEvict`
        or None (none).
      ckpt: Must be None. Use `sok.init_from_checkpoint` to load rows from another checkpoint.
      filter_option: Which keys get rows: a `CounterFilter`, a `CBFFilter` or None (every key, at once).
      storage_option: A `StorageOption`; None: rows are in the memory of the table's device.
      init_option: The initial values of rows, and the value of keys that have no row.
      value_dtype: `EmbeddingVariable`'s `dtype`; None: tf.float32.
      slot_dtype, rounding: As for `EmbeddingVariable`.
    """

    ht_type: str = ""
    ht_partition_num: int = 1000
    evict_option: GlobalStepEvict | L2WeightEvict | None = None
    ckpt: Any = None
    filter_option: CounterFilter | CBFFilter | None = None
    storage_option: StorageOption | None = None
    init_option: InitializerOption = InitializerOption()
    value_dtype: tf.DType | None = None
    slot_dtype: tf.DType = tf.float32
    rounding: str = "stochastic"

    def __post_init__(self) -> None:
        if not isinstance(self.init_option, InitializerOption):
            raise TypeError(
                f"EmbeddingVariableOption: init_option must be an InitializerOption, not {self.init_option!r}"
            )
        if self.storage_option is not None and not isinstance(self.storage_option, StorageOption):
            raise TypeError(
                "EmbeddingVariableOption: storage_option must be a StorageOption, not "
                f"{self.storage_option!r}"
            )
        if self.ckpt is not None:
            raise ValueError(
                f"EmbeddingVariableOption: ckpt must be None, not {self.ckpt!r}: use sok.init_from_checkpoint"
            )


class InParts(EmbeddingVariable):
    """An embedding variable created with a partitioner.

    Programs iterate over the parts of such a variable: one on each parameter server. Without servers it has
    one part, itself: rows are sharded over ranks by key.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts or (self,))

    def __len__(self) -> int:
        return len(self._parts) or 1


def get_embedding_variable(
    name: str,
    embedding_dim: int,
    key_dtype: tf.DType = tf.int64,
    value_dtype: tf.DType | None = None,
    initializer: Any = None,
    regularizer: Callable | None = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    partitioner: Callable | None = None,
    validate_shape: bool = True,
    custom_getter: Callable | None = None,
    constraint: Callable | None = None,
    steps_to_live: int | None = None,
    init_data_source: Any = None,
    ev_option: EmbeddingVariableOption = EmbeddingVariableOption(),
) -> EmbeddingVariable:
    """Creates an embedding variable in the current variable scope, or returns the existing one.

    Names and reuse work as in `tf.compat.v1.get_variable`: the variable's name is the name of the variable
    scope, a slash and `name`; in a scope that reuses variables the same name returns the same variable.
    Unlike with `sok.EmbeddingVariable`, the program need not call `sok.Init`: if it has not, initializing or
    restoring the variable readies the session by itself. `deeprec.use_deeprec_arithmetic` chooses its
    arithmetic.

    Args:
      name: The name in the current variable scope.
      embedding_dim: Number of floats in a row.
      key_dtype: tf.int64, tf.int32 or tf.uint32.
      value_dtype: In which rows are kept, as `dtype` of `sok.EmbeddingVariable`. None: as `ev_option` says.
      initializer: The initial values of rows, as for `sok.EmbeddingVariable`. Initializers that scale with
        the number of rows use `ev_option.init_option.default_value_dim` as that number. None: the initializer
        of `ev_option.init_option` or, without one, a normal distribution with mean 0 and standard deviation
        1, truncated at 2 standard deviations. If both are given, the option's initializer is used.
      regularizer: Must be None, also in the variable scope, because a table has no dense value. Add the loss
        of the rows that are looked up instead.
      trainable: Whether the variable is in `TRAINABLE_VARIABLES`.
      collections: The collections that the variable is added to, by default `[GLOBAL_VARIABLES]`.
      caching_device: Not used.
      partitioner: If given, iterating over the result yields its parts: one on each parameter server or,
        without servers, the variable itself. Servers and ranks share rows by key in any case.
      validate_shape: Not used.
      custom_getter: Must be None. Custom getters of variable scopes are not called.
      constraint: Must be None: updated rows are not changed further.
      steps_to_live: Same as `evict_option=GlobalStepEvict(steps_to_live)`; a `GlobalStepEvict` there has
        precedence.
      init_data_source: Must be None. Use `sok.Saver().load_embedding_values` to set rows.
      ev_option: Options for eviction, admission, initial values, and the types of rows and slots.

    Returns:
      The variable.

    Raises:
      ValueError: The name exists and the scope does not reuse variables; the name does not exist and the
        scope requires reuse; the existing variable has another dim or key dtype, or is an ordinary variable;
        an argument that must be None is not; both `steps_to_live` and an `L2WeightEvict` are given; or an
        argument of `sok.EmbeddingVariable` is out of range.
      TypeError: An argument is of the wrong type.
      RuntimeError: Execution is eager.
    """
    del caching_device, validate_shape
    who = f"get_embedding_variable('{name}')"
    scope = tf.compat.v1.get_variable_scope()
    _check_left_out(
        who,
        regularizer=regularizer or scope.regularizer,
        custom_getter=custom_getter,
        constraint=constraint or scope.constraint,
        init_data_source=init_data_source,
    )
    if not isinstance(name, str) or not name:
        raise TypeError(f"{who}: name must be a non-empty string")
    if not isinstance(ev_option, EmbeddingVariableOption):
        raise TypeError(f"{who}: ev_option must be an EmbeddingVariableOption, not {ev_option!r}")
    full_name = f"{scope.name}/{name}" if scope.name else name
    # Ordinary variables of the graph are in this store too, so a name is used only once.
    named = variable_scope._get_default_variable_store()._vars
    if full_name in named:
        return _found(named[full_name], full_name, scope, embedding_dim, key_dtype)
    if scope.reuse is True:
        raise ValueError(
            f"Embedding variable '{full_name}' does not exist, and its variable scope reuses variables:"
            " use reuse=tf.compat.v1.AUTO_REUSE to create missing variables"
        )
    make = functools.partial(
        InParts if partitioner is not None or scope.partitioner is not None else EmbeddingVariable,
        name=full_name,
        dim=embedding_dim,
        key_dtype=key_dtype,
        dtype=value_dtype or ev_option.value_dtype or tf.float32,
        initializer=_initializer(who, initializer, ev_option.init_option),
        trainable=trainable,
        admission=_admission(ev_option.filter_option),
        eviction=_eviction(who, steps_to_live, ev_option.evict_option),
        row_arithmetic=dialect().uses_row_arithmetic(),
        memory=ev_option.storage_option or "device",
        slot_dtype=ev_option.slot_dtype,
        rounding=ev_option.rounding,
    )
    named[full_name] = variable = _made(make)
    _move_to_collections(variable, collections)
    return variable


def _check_left_out(who: str, **arguments: Any) -> None:
    instead = {
        "regularizer": "a table has no dense value; add the loss of the rows that are looked up",
        "custom_getter": "custom getters of tables are not supported",
        "constraint": "constraints on tables are not supported",
        "init_data_source": "use sok.Saver().load_embedding_values to set rows",
    }
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{who}: {name} must be None, not {value!r}: {instead[name]}")


def _found(
    variable: Any, full_name: str, scope: Any, embedding_dim: int, key_dtype: tf.DType
) -> EmbeddingVariable:
    """Returns the existing variable of that name, if it may be reused."""
    if not scope.reuse:
        raise ValueError(
            f"Variable '{full_name}' already exists, and its variable scope does not reuse variables: set"
            " reuse=True or reuse=tf.compat.v1.AUTO_REUSE in it"
        )
    if not isinstance(variable, EmbeddingVariable):
        raise ValueError(f"Variable '{full_name}' exists, and is not an embedding variable")
    if (variable.dim, variable.key_dtype) != (embedding_dim, key_dtype):
        raise ValueError(
            f"Embedding variable '{full_name}' exists with dim {variable.dim} and {variable.key_dtype.name}"
            f" keys, but dim {embedding_dim} and {tf.as_dtype(key_dtype).name} keys are requested"
        )
    return variable


def _initializer(who: str, initializer: Any, option: InitializerOption) -> InitializerOption:
    if option.initializer is not None:
        if initializer is not None:
            _logger.warning("%s: uses the initializer of its InitializerOption", who)
        return option
    if initializer is None:
        initializer = tf.compat.v1.truncated_normal_initializer()
    return dataclasses.replace(option, initializer=initializer)


def _admission(option: CounterFilter | CBFFilter | None) -> CounterFilter | CBFFilter | None:
    # A counter of 0 filters nothing.
    return CounterFilter(0) if option is None and dialect().keeps_frequencies() else option


def _eviction(
    who: str, steps_to_live: int | None, option: GlobalStepEvict | L2WeightEvict | None
) -> GlobalStepEvict | L2WeightEvict | None:
    if steps_to_live is None:
        # No row gets that old.
        return GlobalStepEvict(2**63 - 1) if option is None and dialect().keeps_last_steps() else option
    if isinstance(option, L2WeightEvict) and option.l2_weight_threshold > 0:
        raise ValueError(f"{who}: give either steps_to_live={steps_to_live} or {option}, not both")
    if isinstance(option, GlobalStepEvict):
        _logger.warning("%s: uses the steps_to_live of its GlobalStepEvict", who)
        return option
    return GlobalStepEvict(steps_to_live)


def _made(make: Callable[[], EmbeddingVariable]) -> EmbeddingVariable:
    # As TensorFlow creates variables: outside conditionals and without the current name scope.
    with tf.init_scope():
        graph = tf.compat.v1.get_default_graph()
        with graph.name_scope(None), table_device():
            ready_graph()
            variable = make()
            dialect().add_table(variable)
            return variable


def _move_to_collections(variable: EmbeddingVariable, collections: Sequence[str] | None) -> None:
    """Adds a new variable to `collections`; removes it from GLOBAL_VARIABLES if not listed there."""
    global_variables = tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
    if collections is None:
        return
    graph = variable.graph
    for name in dict.fromkeys(collections):
        if name != global_variables and not any(one is variable for one in graph.get_collection(name)):
            graph.add_to_collection(name, variable)
    if global_variables not in collections:
        known = graph.get_collection_ref(global_variables)
        known[:] = [one for one in known if one is not variable]
