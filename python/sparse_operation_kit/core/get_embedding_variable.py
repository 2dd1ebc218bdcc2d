"""get_embedding_variable: DeepRec's way to make, and to find again, an embedding variable by its name."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import variable_scope

from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.core.initialize import ready_graph
from sparse_operation_kit.core.row_policies import (
    CBFFilter,
    CounterFilter,
    GlobalStepEvict,
    InitializerOption,
    L2WeightEvict,
)
from sparse_operation_kit.core.table_device import table_device

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class EmbeddingVariableOption:
    """DeepRec's options of an embedding variable, under its names and in its order.

    Attributes:
      ht_type: DeepRec's kind of hash table. Unused: there is one kind here.
      ht_partition_num: DeepRec's number of parts of a hash table. Unused.
      evict_option: A `GlobalStepEvict` or an `L2WeightEvict`: rows that go when a checkpoint is saved. None:
        none.
      ckpt: Must be None: `sok.init_from_checkpoint` takes rows from another checkpoint.
      filter_option: A `CounterFilter` or a `CBFFilter`: which keys get rows. None: every key, at once.
      storage_option: Must be None: rows are in memory.
      init_option: What rows start from, and what keys read as that have none.
    """

    ht_type: str = ""
    ht_partition_num: int = 1000
    evict_option: GlobalStepEvict | L2WeightEvict | None = None
    ckpt: Any = None
    filter_option: CounterFilter | CBFFilter | None = None
    storage_option: Any = None
    init_option: InitializerOption = InitializerOption()

    def __post_init__(self) -> None:
        if not isinstance(self.init_option, InitializerOption):
            raise TypeError(
                f"EmbeddingVariableOption: init_option must be an InitializerOption, not {self.init_option!r}"
            )
        for name, instead in (("ckpt", "use sok.init_from_checkpoint"), ("storage_option", _IN_MEMORY)):
            value = getattr(self, name)
            if value is not None:
                raise ValueError(f"EmbeddingVariableOption: {name} must be None, not {value!r}: {instead}")


_IN_MEMORY = "rows are in the memory of the ranks"


class _InParts(EmbeddingVariable):
    """An embedding variable that was asked for in parts.

    Programs go through the parts that a partitioner has made. There is one: ranks share the rows by key.
    """

    def __iter__(self) -> Iterator[EmbeddingVariable]:
        return iter((self,))

    def __len__(self) -> int:
        return 1


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
    """Makes an embedding variable in the current variable scope, or gives the one that is there.

    Names and reuse are those of `tf.compat.v1.get_variable`: the variable's name is that of the variable
    scope, a slash and `name`; in a scope that reuses variables the same name gives the same variable. Unlike
    that of `sok.EmbeddingVariable`, its initializer, and restoring it, runs `sok.Init` where the program has
    not: a program need not know of it.

    Args:
      name: In the current variable scope.
      embedding_dim: Floats of a row.
      key_dtype: tf.int64, tf.int32 or tf.uint32.
      value_dtype: tf.float32 or None.
      initializer: What rows start from, as `sok.EmbeddingVariable`'s; initializers that scale with the number
        of rows take `ev_option.init_option.default_value_dim` for it. None: `ev_option.init_option`'s, or
        else a normal distribution with mean 0 and standard deviation 1, cut at 2. Where both are given the
        option's is taken.
      regularizer: Must be None, as that of the variable scope: a table has no dense value. Add the loss of
        the rows that are looked up.
      trainable: Whether it is in `TRAINABLE_VARIABLES`.
      collections: The collections that it is in, `[GLOBAL_VARIABLES]` by default.
      caching_device: Unused.
      partitioner: With one, the result can be gone through as its single part; ranks share rows by key in any
        case.
      validate_shape: Unused.
      custom_getter: Must be None; those of variable scopes are not called.
      constraint: Must be None: what an optimizer leaves is not changed.
      steps_to_live: As `evict_option=GlobalStepEvict(steps_to_live)`, which goes before it.
      init_data_source: Must be None: `sok.Saver().load_embedding_values` sets rows.
      ev_option: Eviction, admission and initial rows.

    Returns:
      The variable.

    Raises:
      ValueError: The name is taken and the scope does not reuse variables, or it has none of that name and
        reuses; the variable there has another dim or key dtype; an argument that must be None is not.
      TypeError: An argument is of the wrong type.
      RuntimeError: Eager execution.
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
        raise TypeError(f"{who}: name must be a string that is not empty")
    if not isinstance(ev_option, EmbeddingVariableOption):
        raise TypeError(f"{who}: ev_option must be an EmbeddingVariableOption, not {ev_option!r}")
    full_name = f"{scope.name}/{name}" if scope.name else name
    # Where ordinary variables of the graph are too, so that no name is given twice.
    named = variable_scope._get_default_variable_store()._vars
    if full_name in named:
        return _found(named[full_name], full_name, scope, embedding_dim, key_dtype)
    if scope.reuse is True:
        raise ValueError(
            f"Embedding variable '{full_name}' does not exist, and its variable scope reuses variables:"
            " reuse=tf.compat.v1.AUTO_REUSE makes those that are not there"
        )
    make = functools.partial(
        _InParts if partitioner is not None or scope.partitioner is not None else EmbeddingVariable,
        name=full_name,
        dim=embedding_dim,
        key_dtype=key_dtype,
        dtype=tf.float32 if value_dtype is None else value_dtype,
        initializer=_initializer(who, initializer, ev_option.init_option),
        trainable=trainable,
        admission=ev_option.filter_option,
        eviction=_eviction(who, steps_to_live, ev_option.evict_option),
    )
    named[full_name] = variable = _made(make)
    _move_to_collections(variable, collections)
    return variable


def _check_left_out(who: str, **arguments: Any) -> None:
    instead = {
        "regularizer": "a table has no dense value; add the loss of the rows that are looked up",
        "custom_getter": "there is no other way to get a table",
        "constraint": "what an optimizer leaves in a table is not changed",
        "init_data_source": "sok.Saver().load_embedding_values sets rows",
    }
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{who}: {name} must be None, not {value!r}: {instead[name]}")


def _found(
    variable: Any, full_name: str, scope: Any, embedding_dim: int, key_dtype: tf.DType
) -> EmbeddingVariable:
    """The variable of that name, if it may be given again."""
    if not scope.reuse:
        raise ValueError(
            f"Variable '{full_name}' already exists, and its variable scope does not reuse variables: set"
            " reuse=True or reuse=tf.compat.v1.AUTO_REUSE in it"
        )
    if not isinstance(variable, EmbeddingVariable):
        raise ValueError(f"Variable '{full_name}' exists, and is no embedding variable")
    if (variable.dim, variable.key_dtype) != (embedding_dim, key_dtype):
        raise ValueError(
            f"Embedding variable '{full_name}' exists with dim {variable.dim} and {variable.key_dtype.name}"
            f" keys, and was asked for with dim {embedding_dim} and {tf.as_dtype(key_dtype).name} keys"
        )
    return variable


def _initializer(who: str, initializer: Any, option: InitializerOption) -> InitializerOption:
    if option.initializer is not None:
        if initializer is not None:
            _logger.warning("%s: the initializer of its InitializerOption is taken", who)
        return option
    if initializer is None:
        initializer = tf.compat.v1.truncated_normal_initializer()
    return dataclasses.replace(option, initializer=initializer)


def _eviction(
    who: str, steps_to_live: int | None, option: GlobalStepEvict | L2WeightEvict | None
) -> GlobalStepEvict | L2WeightEvict | None:
    if steps_to_live is None:
        return option
    if isinstance(option, L2WeightEvict) and option.l2_weight_threshold > 0:
        raise ValueError(f"{who}: rows go by steps_to_live={steps_to_live} or by {option}, not by both")
    if isinstance(option, GlobalStepEvict):
        _logger.warning("%s: the steps_to_live of its GlobalStepEvict is taken", who)
        return option
    return GlobalStepEvict(steps_to_live)


def _made(make: Callable[[], EmbeddingVariable]) -> EmbeddingVariable:
    # As TensorFlow makes variables: outside of conditionals, under the name of the variable scope alone.
    with tf.init_scope():
        graph = tf.compat.v1.get_default_graph()
        with graph.name_scope(None), table_device():
            ready_graph()
            return make()


def _move_to_collections(variable: EmbeddingVariable, collections: Sequence[str] | None) -> None:
    """Puts a new variable into `collections`, and takes it out of GLOBAL_VARIABLES where that is not one."""
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
