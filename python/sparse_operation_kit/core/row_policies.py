"""Which keys of an embedding variable get rows, and which rows go: DeepRec's options, under its names."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import tensorflow as tf

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
    """A key gets its row once training lookups have seen it `filter_freq` times.

    The occurrences of a whole step count at once, those of all ranks together: a key that reaches
    `filter_freq` in a lookup gets its row in that lookup, and trains. Until then it reads as the
    `default_value_no_permission` of the variable's `InitializerOption` (0), and nothing trains. Counts are
    exact: 32 bytes or so for each key that waits. A checkpoint holds them.

    Attributes:
      filter_freq: How often; 0 and 1 let every key in at once.
    """

    filter_freq: int = 0

    def __post_init__(self) -> None:
        _check_count("CounterFilter", "filter_freq", self.filter_freq, least=0)


@dataclasses.dataclass(frozen=True)
class CBFFilter:
    """As `CounterFilter`, with counts in a counting Bloom filter, whose memory does not grow.

    A key's count may come out too high, and then it gets its row too early; never too low. With
    k = ceil(log2(1 / false_positive_probability)) hash functions there are
    ceil(k * max_element_size / ln 2) counters.

    Attributes:
      filter_freq: How often; 0 and 1 let every key in at once.
      max_element_size: Distinct keys on a rank for which the probability holds; at least 1.
      false_positive_probability: That a key which has not come yet counts as seen, in (0, 1).
      counter_type: dtype of a counter, an integer; counters stay at its largest value. Signed dtypes are
        taken for the unsigned ones of their size.
    """

    filter_freq: int = 0
    max_element_size: int = 0
    false_positive_probability: float = -1.0
    counter_type: tf.DType = tf.uint64

    def __post_init__(self) -> None:
        _check_count("CBFFilter", "filter_freq", self.filter_freq, least=0)
        _check_count("CBFFilter", "max_element_size", self.max_element_size, least=1)
        probability = self.false_positive_probability
        if isinstance(probability, bool) or not isinstance(probability, (int, float)):
            raise TypeError(f"CBFFilter: false_positive_probability must be a number, not {probability!r}")
        if not 0 < probability < 1:
            raise ValueError(f"CBFFilter: false_positive_probability must be in (0, 1), not {probability}")
        if self.counter_type not in _COUNTER_BITS:
            names = ", ".join(dtype.name for dtype in _COUNTER_BITS)
            raise ValueError(f"CBFFilter: counter_type must be one of {names}, not {self.counter_type!r}")


@dataclasses.dataclass(frozen=True)
class GlobalStepEvict:
    """At a save, rows go that were last updated more than `steps_to_live` training steps ago.

    Steps are the global steps of the graph (`tf.compat.v1.train.get_global_step()`), where it has one when
    the optimizer is applied; else those of the table, of which each application of an optimizer is one. Keys
    that wait for admission and were last seen so long ago go too.

    Attributes:
      steps_to_live: None and 0: no row goes.
    """

    steps_to_live: int | None = None

    def __post_init__(self) -> None:
        if self.steps_to_live is not None:
            _check_count("GlobalStepEvict", "steps_to_live", self.steps_to_live, least=0)


@dataclasses.dataclass(frozen=True)
class L2WeightEvict:
    """At a save, rows w go with 0.5 * sum(w * w) < `l2_weight_threshold`.

    Attributes:
      l2_weight_threshold: 0 and less: no row goes.
    """

    l2_weight_threshold: float = -1.0

    def __post_init__(self) -> None:
        threshold = self.l2_weight_threshold
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
            raise TypeError(f"L2WeightEvict: l2_weight_threshold must be a number, not {threshold!r}")
        if not math.isfinite(threshold):
            raise ValueError(f"L2WeightEvict: l2_weight_threshold must be finite, not {threshold}")


@dataclasses.dataclass(frozen=True)
class InitializerOption:
    """What rows start from, and what keys read as that have none yet.

    Attributes:
      initializer: As `EmbeddingVariable`'s.
      default_value_dim: DeepRec's number of initial rows that keys share. Here each key has its own, and
        initializers that scale with the number of rows take it for that in a table without a capacity. As
        in DeepRec, 0 and less stand for 4096.
      default_value_no_permission: What every column of a key reads as while a filter does not let it in.
    """

    initializer: Any = None
    default_value_dim: int = 4096
    default_value_no_permission: float = 0.0

    def __post_init__(self) -> None:
        value = self.default_value_no_permission
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"InitializerOption: default_value_no_permission must be a number, not {value!r}")
        if not math.isfinite(value):
            raise ValueError(f"InitializerOption: default_value_no_permission must be finite, not {value}")
        rows = self.default_value_dim
        if isinstance(rows, bool) or not hasattr(rows, "__index__"):
            raise TypeError(f"InitializerOption: default_value_dim must be an int, not {rows!r}")

    @property
    def rows_to_scale_with(self) -> int:
        """The number of rows, for initializers that ask for it, of a table without a capacity."""
        return self.default_value_dim if self.default_value_dim > 0 else 4096


def check_policies(
    who: str, capacity: int | None, use_hashtable: bool, on_full: Any, admission: Any, eviction: Any
) -> None:
    """Refuses policies that a table cannot have; `who` names the variable.

    Raises:
      TypeError: One is of another class than those above.
      ValueError: `on_full` is unknown, or one of them needs hashing or a capacity that is not there.
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
    """Returns the attributes of `SokInitializeTable` for policies that `check_policies` has passed."""
    attributes: dict[str, Any] = {"on_full": on_full}
    if admission is not None:
        attributes["admission"] = "counter"
        attributes["filter_freq"] = int(admission.filter_freq)
        attributes["default_value"] = float(default_value)
    if isinstance(admission, CBFFilter):
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


def _check_count(who: str, name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{who}: {name} must be an int, not {value!r}")
    if not least <= value < 2**63:
        raise ValueError(f"{who}: {name} must be in [{least}, 2^63), not {value}")
