"""DynamicVariable, a table that grows; assign and export, which write and read its rows as tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.experiment.initialize import placement_of, target_of
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.ranks.initialize import ready_graph
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable

# Options of the original SOK's device tables. Only max_capacity has an effect here.
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
    """An `EmbeddingVariable` with the arguments of the original SOK. A row is created at its first lookup.

    Attributes:
      dimension: Number of floats in a row.
      key_type: The dtype of keys.
      handle_dtype: tf.float32.
      mode: The `mode` argument. A "localized" variable has all rows on that rank; any other is sharded over
        the ranks by key. Lookups give the same results.
      target_gpu: The rank of a "localized" variable, else -1.
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
        *,
        slot_dtype: tf.DType = tf.float32,
        rounding: str = "stochastic",
        **kwargs: Any,
    ) -> None:
        """Creates the variable in the default graph. Its initializer runs `sok.Init` if needed.

        Args:
          dimension: Number of floats in a row.
          initializer: None, "" or "random" (uniform in [-0.05, 0.05)), a number or its string, or any
            initializer that `EmbeddingVariable` takes.
          var_type: None or "hbm": a table that grows. "hybrid": a table that evicts the least recently used
            rows when a rank has `max_capacity` rows. In either case, rows are in the memory of the table's
            device.
          name: "DynamicVariable" by default, made unique.
          constraint: Must be None.
          trainable: Whether the variable is in `TRAINABLE_VARIABLES`.
          key_type: tf.int64 (the default), tf.int32 or tf.uint32.
          dtype: In which rows are kept, as `dtype` of `EmbeddingVariable`; None: tf.float32.
          mode: None, "distributed" or "localized:<rank>"; see the class.
          slot_dtype, rounding: As for `EmbeddingVariable`.
          **kwargs: Options of the original SOK's backends. `max_capacity` limits a "hybrid" table; the others
            are accepted and ignored.

        Raises:
          TypeError, ValueError: An argument is of the wrong type or out of range.
        """
        if constraint is not None:
            raise ValueError("DynamicVariable: constraint must be None, as rows are updated one by one")
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
            slot_dtype=slot_dtype,
            rounding=rounding,
        )
        self.dimension = self.dim
        self.key_type = self.key_dtype
        self.handle_dtype = self.dtype
        self.num_gpus = communicator().size

    @property
    def size(self) -> tf.Tensor:
        """The number of rows on this rank and their length, an int64 tensor `[rows, dimension]`."""
        return self.total_count()

    def is_static(self) -> bool:
        """Returns False: the table always grows."""
        return False

    def key_map(self, indices: tf.Tensor) -> tf.Tensor:
        """Returns `indices`: a key is the same on every rank."""
        return indices


def _initializer(initializer: Any) -> Any:
    """Converts the `initializer` argument to one that `EmbeddingVariable` takes."""
    if not isinstance(initializer, str):
        return initializer
    if initializer in ("", "random"):
        return None
    try:
        return float(initializer)
    except ValueError:
        return initializer


def assign(var: EmbeddingVariable, indices: Any, values: Any) -> tf.Tensor:
    """Returns a tensor that sets the rows of the keys `indices` to `values`; its value is `b'OK'`.

    With several ranks, every rank runs it and sets only the rows that it owns: those with
    `key % ranks == rank`, or all rows of a variable that is localized on it.

    Args:
      var: A variable of this module, or any `EmbeddingVariable`.
      indices: Distinct keys `[n]`.
      values: float32 `[n, dimension]`.

    Raises:
      TypeError: `var` is not an embedding variable.
    """
    keys = tf.cast(tf.convert_to_tensor(indices, dtype_hint=_table(var).key_dtype), var.key_dtype)
    rows = tf.convert_to_tensor(values, tf.float32)
    return native.ops.sok_table_assign(var.handle, tf.cast(keys, tf.int64), rows)


def export(var: EmbeddingVariable) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns `(indices, values)`: the keys `[n]` and rows `[n, dimension]` that this rank holds.

    Raises:
      TypeError: `var` is not an embedding variable.
    """
    return _table(var).keys_and_rows()


def _table(var: EmbeddingVariable) -> EmbeddingVariable:
    if not isinstance(var, EmbeddingVariable):
        raise TypeError(f"sok.experiment needs one of its variables or an EmbeddingVariable, not {var!r}")
    return var
