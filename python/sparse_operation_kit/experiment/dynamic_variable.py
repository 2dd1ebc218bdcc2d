"""DynamicVariable: a table that grows, and its rows as tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.core.initialize import ready_graph
from sparse_operation_kit.experiment.placement import placement_of, target_of

# What the original hands to its tables on a device. Of these only max_capacity bounds anything here.
_BACKEND_OPTIONS = (
    "init_capacity",
    "max_capacity",
    "max_hbm_for_vectors",
    "max_bucket_size",
    "max_load_factor",
    "block_size",
    "io_block_size",
    "device_id",
    "io_by_cpu",
    "evict_strategy",
    "reserved_key_start_bit",
    "num_of_buckets_per_alloc",
)


class DynamicVariable(EmbeddingVariable):
    """An `EmbeddingVariable` with the original's arguments: rows come as their keys are looked up.

    Attributes:
      dimension: Floats of a row.
      key_type: The dtype of keys.
      handle_dtype: tf.float32.
      mode, target_gpu: As given, and the rank in it or -1. A "localized" variable has its rows on that rank,
        any other on all ranks, by key; lookups give the same.
      num_gpus: The number of ranks.
    """

    def __init__(
        self,
        dimension: int,
        initializer: Any = None,
        var_type: str | None = None,
        name: str | None = None,
        constraint: Any = None,
        trainable: bool = True,
        key_type: tf.DType | None = None,
        dtype: tf.DType | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Makes the variable in the default graph; its initializer readies the session by itself.

        Args:
          dimension: Floats of a row.
          initializer: None, "" or "random" (uniform in [-0.05, 0.05)), a number as a string or as it is, or
            what `EmbeddingVariable` takes.
          var_type: None or "hbm", a table that grows, or "hybrid", which lets rows go whose last lookup is
            longest ago when `max_capacity` rows are on a rank. Rows are in the host's memory in either case.
          name: "DynamicVariable" by default, made unique.
          constraint: Must be None.
          trainable: Whether it is in `TRAINABLE_VARIABLES`.
          key_type: tf.int64 (the default), tf.int32 or tf.uint32.
          dtype: tf.float32.
          mode: None, "distributed" or "localized:<rank>"; see the class.
          **kwargs: Options of the original's backends. `max_capacity` bounds a "hybrid" table; the others
            size buffers that are not here.

        Raises:
          TypeError, ValueError: An argument is of the wrong type or out of range.
        """
        if constraint is not None:
            raise ValueError("DynamicVariable: constraint must be None, for rows are updated one by one")
        if var_type not in (None, "hbm", "hybrid"):
            raise ValueError(f"DynamicVariable: var_type must be 'hbm' or 'hybrid', not {var_type!r}")
        unknown = sorted(set(kwargs) - set(_BACKEND_OPTIONS))
        if unknown:
            raise TypeError(
                f"DynamicVariable does not know {unknown}; it takes {', '.join(_BACKEND_OPTIONS)}"
            )
        capacity = (kwargs.get("max_capacity") or None) if var_type == "hybrid" else None
        self.mode = mode
        self.target_gpu = target_of(mode)
        self._placement = placement_of(self.target_gpu)
        ready_graph()
        super().__init__(
            name="DynamicVariable" if name is None else name,
            dim=dimension,
            capacity=capacity,
            key_dtype=tf.int64 if key_type is None else key_type,
            dtype=tf.float32 if dtype is None else dtype,
            initializer=_initializer(initializer),
            trainable=trainable,
            on_full="error" if capacity is None else "evict_lru",
        )
        self.dimension = self.dim
        self.key_type = self.key_dtype
        self.handle_dtype = self.dtype
        self.num_gpus = communicator().size

    @property
    def size(self) -> tf.Tensor:
        """The shape of what this rank holds, an int64 tensor `[rows, dimension]`."""
        return self.total_count()

    def is_static(self) -> bool:
        """Returns False: the table is never cut to the rows of a step."""
        return False

    def key_map(self, indices: tf.Tensor) -> tf.Tensor:
        """Returns `indices`: a key is the same on every rank."""
        return indices


def _initializer(initializer: Any) -> Any:
    """What `EmbeddingVariable` takes for it."""
    if not isinstance(initializer, str):
        return initializer
    if initializer in ("", "random"):
        return None
    try:
        return float(initializer)
    except ValueError:
        return initializer


def assign(var: EmbeddingVariable, indices: Any, values: Any) -> tf.Tensor:
    """Returns the tensor that gives the keys `indices` the rows `values`; running it gives `b'OK'`.

    Over several ranks each runs it, and takes the keys that are its own of those it is given: `key % ranks`,
    or all of a variable that is localized on the rank.

    Args:
      var: A variable of this module, or any `EmbeddingVariable`.
      indices: Distinct keys `[n]`.
      values: float32 `[n, dimension]`.

    Raises:
      TypeError: `var` is no embedding variable.
    """
    keys = tf.cast(tf.convert_to_tensor(indices, dtype_hint=_table(var).key_dtype), var.key_dtype)
    rows = tf.convert_to_tensor(values, tf.float32)
    return native.ops.sok_table_assign(var.handle, tf.cast(var.checked_keys(keys), tf.int64), rows)


def export(var: EmbeddingVariable) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns `(indices, values)`: the keys `[n]` and rows `[n, dimension]` that this rank holds.

    Raises:
      TypeError: `var` is no embedding variable.
    """
    return _table(var).keys_and_rows()


def _table(var: EmbeddingVariable) -> EmbeddingVariable:
    if not isinstance(var, EmbeddingVariable):
        raise TypeError(f"sok.experiment needs a variable of its own or an EmbeddingVariable, not {var!r}")
    return var
