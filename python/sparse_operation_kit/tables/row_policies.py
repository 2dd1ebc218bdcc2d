"""Admission and eviction options of embedding variables, with DeepRec's names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.arguments import whole_number
from sparse_operation_kit.tables import table_parts

_COUNTER_BITS = {
    tf.uint8: 8,
    tf.uint16: 16,
    tf.uint32: 32,
    tf.int32: 32,
    tf.uint64: 64,
    tf.int64: 64,
}
ON_FULL = ("error", "evict_lru", "evict_lfu")


@dataclasses.dataclass(frozen=True)
class CounterFilter:
    """Admits a key, that is, creates its row, once training lookups have seen it `filter_freq` times.

    All occurrences in a step are counted together, over all ranks: a key that reaches `filter_freq` in a
    lookup gets its row in that lookup and is trained. Until then every column of the key reads as the
    `default_value_no_permission` (0 by default) of the variable's `InitializerOption`, and the key is not
    trained. Counts are exact and take about 50 bytes per key that is not yet admitted. Checkpoints save them.

    Attributes:
      filter_freq: The number of occurrences. 1 admits every key at once. With 0, as in DeepRec, nothing is
        filtered: keys without a row read as their initial row. Occurrences are counted in every case.
      before_lookup: Whether a lookup reads its keys as they were before it, as DeepRec's releases until 2023
        do: the lookup that admits a key still reads the default value, and trains the new row.
    """

    filter_freq: int = 0
    before_lookup: bool = False

    def __post_init__(self) -> None:
        whole_number(self.filter_freq, "CounterFilter: filter_freq", 0, 63)
        _check_bool("CounterFilter", "before_lookup", self.before_lookup)


@dataclasses.dataclass(frozen=True)
class CBFFilter:
    """Like `CounterFilter`, with counts in a counting Bloom filter, whose memory is bounded.

    A count may be too high, so that a key gets its row too early; it is never too low. The filter has
    k = ceil(log2(1 / false_positive_probability)) hash functions and ceil(k * max_element_size / ln 2)
    counters.

    Attributes:
      filter_freq: As for `CounterFilter`. With 0 there is no Bloom filter: `max_element_size` may be 0, and
        `false_positive_probability` any number.
      max_element_size: The number of distinct keys per rank up to which the probability holds; at least 1.
      false_positive_probability: The probability that an unseen key counts as seen, in (0, 1).
      counter_type: The integer dtype of a counter. Counters stop at its largest value. Signed dtypes are
        treated as the unsigned dtypes of the same size.
      before_lookup: As for `CounterFilter`.
    """

    filter_freq: int = 0
    max_element_size: int = 0
    false_positive_probability: float = -1.0
    counter_type: tf.DType = tf.uint64
    before_lookup: bool = False

    def __post_init__(self) -> None:
        _check_bool("CBFFilter", "before_lookup", self.before_lookup)
        whole_number(self.filter_freq, "CBFFilter: filter_freq", 0, 63)
        least = 1 if self.filter_freq else 0
        whole_number(self.max_element_size, "CBFFilter: max_element_size", least, 63)
        probability = self.false_positive_probability
        _check_number("CBFFilter: false_positive_probability", probability)
        if self.filter_freq and not 0 < probability < 1:
            raise ValueError(f"CBFFilter: false_positive_probability must be in (0, 1), not {probability}")
        if self.counter_type not in _COUNTER_BITS:
            names = ", ".join(dtype.name for dtype in _COUNTER_BITS)
            raise ValueError(f"CBFFilter: counter_type must be one of {names}, not {self.counter_type!r}")


@dataclasses.dataclass(frozen=True)
class GlobalStepEvict:
    """A save evicts rows that were last updated more than `steps_to_live` training steps ago.

    Steps are global steps (`tf.compat.v1.train.get_global_step()`) if the graph has a global step when the
    optimizer is applied. Otherwise the table counts its own steps, one for each time that an optimizer is
    applied to it. Keys that a `CounterFilter` has not admitted and that were last seen that long ago are
    removed too.

    Attributes:
      steps_to_live: With None or 0 no row is evicted.
    """

    steps_to_live: int | None = None

    def __post_init__(self) -> None:
        if self.steps_to_live is not None:
            whole_number(self.steps_to_live, "GlobalStepEvict: steps_to_live", 0, 63)


@dataclasses.dataclass(frozen=True)
class L2WeightEvict:
    """A save evicts rows w with 0.5 * sum(w * w) < `l2_weight_threshold`.

    Attributes:
      l2_weight_threshold: With a value <= 0 no row is evicted.
    """

    l2_weight_threshold: float = -1.0

    def __post_init__(self) -> None:
        _check_number("L2WeightEvict: l2_weight_threshold", self.l2_weight_threshold, finite=True)


@dataclasses.dataclass(frozen=True)
class InitializerOption:
    """The initial values of rows, and the value of keys that are not yet admitted.

    Attributes:
      initializer: See `EmbeddingVariable`.
      default_value_dim: The number of initial rows that keys share in a table with DeepRec's arithmetic,
        below 2^32; in other tables each key has its own. In a table without a capacity, initializers that
        scale with the number of rows use this value as that number. As in DeepRec, values <= 0 mean 4096.
      default_value_no_permission: The value of every column of a key that is not yet admitted.
    """

    initializer: Any = None
    default_value_dim: int = 4096
    default_value_no_permission: float = 0.0

    def __post_init__(self) -> None:
        value = self.default_value_no_permission
        _check_number("InitializerOption: default_value_no_permission", value, finite=True)
        rows = self.default_value_dim
        if isinstance(rows, bool) or not hasattr(rows, "__index__"):
            raise TypeError(f"InitializerOption: default_value_dim must be an int, not {rows!r}")
        if rows >= 2**32:
            raise ValueError(f"InitializerOption: default_value_dim must be below 2^32, not {rows}")

    @property
    def rows(self) -> int:
        """The number of rows that keys share, or that initializers assume for a table without a capacity."""
        return int(self.default_value_dim) if self.default_value_dim > 0 else 4096


def check_policies(
    who: str, capacity: int | None, use_hashtable: bool, on_full: Any, admission: Any, eviction: Any
) -> None:
    """Checks that a table can have these policies; `who` is the beginning of error messages.

    Raises:
      TypeError: A policy is not of one of the classes above.
      ValueError: `on_full` is unknown, or a policy needs a hash table or a capacity that the table lacks.
    """
    if on_full not in ON_FULL:
        raise ValueError(f"{who}: on_full must be 'error', 'evict_lru' or 'evict_lfu', not {on_full!r}")
    if on_full != "error" and capacity is None:
        raise ValueError(f"{who}: on_full={on_full!r} needs a capacity; a table without bound is never full")
    if admission is not None and not isinstance(admission, (CounterFilter, CBFFilter)):
        raise TypeError(f"{who}: admission must be None, a CounterFilter or a CBFFilter, not {admission!r}")
    if eviction is not None and not isinstance(eviction, (GlobalStepEvict, L2WeightEvict)):
        raise TypeError(
            f"{who}: eviction must be None, a GlobalStepEvict or an L2WeightEvict, not {eviction!r}"
        )
    if use_hashtable:
        return
    for name, policy in (("admission", admission), ("eviction", eviction)):
        if policy is not None:
            raise ValueError(f"{who}: without hashing every row is always there; {name} must be None")
    if on_full != "error":
        raise ValueError(f"{who}: without hashing a table is never full; on_full must be 'error'")


def policy_attributes(
    on_full: str,
    admission: CounterFilter | CBFFilter | None,
    eviction: GlobalStepEvict | L2WeightEvict | None,
    default_value: float,
) -> dict[str, Any]:
    """Returns the attributes of `SokInitializeTable` for policies checked by `check_policies`."""
    attributes: dict[str, Any] = {"on_full": on_full}
    if admission is not None:
        attributes["admission"] = "counter"
        attributes["filter_freq"] = int(admission.filter_freq)
        attributes["default_value"] = float(default_value)
        attributes["before_lookup"] = admission.before_lookup
    if isinstance(admission, CBFFilter) and admission.filter_freq:
        attributes["admission"] = "bloom"
        attributes["max_element_size"] = int(admission.max_element_size)
        attributes["false_positive_probability"] = float(admission.false_positive_probability)
        attributes["counter_bits"] = _COUNTER_BITS[tf.as_dtype(admission.counter_type)]
    if isinstance(eviction, GlobalStepEvict) and eviction.steps_to_live:
        attributes["eviction"] = "global_step"
        attributes["steps_to_live"] = int(eviction.steps_to_live)
    if isinstance(eviction, L2WeightEvict) and eviction.l2_weight_threshold > 0:
        attributes["eviction"] = "l2_weight"
        attributes["l2_weight_threshold"] = float(eviction.l2_weight_threshold)
    return attributes


def _check_bool(who: str, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{who}: {name} must be True or False, not {value!r}")


def _check_number(what: str, value: Any, finite: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a number, not {value!r}")
    if finite and not math.isfinite(value):
        raise ValueError(f"{what} must be finite, not {value}")


def tell_global_step(variables: Iterable[Any], after: Sequence[tf.Tensor] = ()) -> list[tf.Operation]:
    """Adds ops that set the current global step in tables with a `GlobalStepEvict`.

    Updates of tables and saves wait for these ops. An update uses the global step before the program
    increments it.

    Args:
      variables: Any embedding variables.
      after: The tensors that the ops wait for: one for all processes, or one for each. Before an update this
        is the lookup, which could otherwise see either step.

    Returns:
      The ops: for each such table, one for each process that has its rows. None if the graph has no global
      step, so that tables count their own steps.
    """
    aging = [variable for variable in variables if variable.evicts_by_step]
    step = tf.compat.v1.train.get_global_step() if aging else None
    if step is None:
        return []
    told = []
    with tf.name_scope("global_step_of_tables"):
        # Read once: a variable would be read, and sent to the process, for each op.
        with table_parts.beside(aging[0].handles[0], aging[0]), tf.control_dependencies(after[:1]):
            value = tf.cast(step.read_value() if hasattr(step, "read_value") else step, tf.int64)
        for table in aging:
            for process, handle in enumerate(table.handles):
                waits = after if len(after) < 2 else [after[process]]
                with table_parts.beside(handle, table), tf.control_dependencies(waits):
                    told.append(native.ops.sok_table_set_global_step(handle, value))
    return told
