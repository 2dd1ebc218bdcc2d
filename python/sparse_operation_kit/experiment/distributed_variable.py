"""Variable: a table with a fixed number of rows, with the keys 0, 1, 2 and so on."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.experiment.initialize import ALL_RANKS, checked_rank, placement_of, target_of
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.ranks.initialize import ready_graph
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


def Variable(*args: Any, **kwargs: Any) -> EmbeddingVariable:  # noqa: N802 - the name is the original's
    """Returns a `DistributedVariable`, or with `mode="localized:<rank>"` a `LocalizedVariable`.

    All other arguments are passed on to that class.

    Raises:
      ValueError: The mode is unknown, or the rank does not exist.
    """
    target = target_of(kwargs.pop("mode", None))
    if target == ALL_RANKS:
        return DistributedVariable(*args, **kwargs)
    return LocalizedVariable(*args, **{**kwargs, "target_gpu": target})


class FixedRows(EmbeddingVariable):
    """A table without hashing, with the keys [0, global_shape[0]). Other keys are errors, on all ranks.

    Attributes:
      global_shape: `(rows, columns)` over all ranks. `shape` is the shape of the rows read on this rank.
      target_gpu: The rank of a localized variable, -1 for a distributed one.
      global_gpu_id: This rank.
      num_gpus: The number of ranks.
    """

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        dtype: tf.DType | None = None,
        variable_def: Any = None,
        import_scope: Any = None,
        constraint: Any = None,
        distribute_strategy: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
        initializer: Any = None,
        *,
        slot_dtype: tf.DType = tf.float32,
        rounding: str = "stochastic",
    ) -> None:
        """Creates the variable in the default graph. Its initializer runs `sok.Init` if needed.

        Args:
          initial_value: All rows, [rows, columns], the same on all ranks: an array, a list or a tensor.
          trainable: Whether the variable is in `TRAINABLE_VARIABLES`; None means True.
          collections, variable_def, import_scope, constraint, distribute_strategy: Must be None.
          validate_shape, caching_device, synchronization, aggregation: Not used.
          name: "Variable" by default, made unique.
          dtype: In which rows are kept, as `dtype` of `EmbeddingVariable`; None: tf.float32.
          shape: (rows, columns), instead of `initial_value`.
          initializer: Used with `shape`; see `EmbeddingVariable`.
          slot_dtype, rounding: As for `EmbeddingVariable`.

        Raises:
          TypeError, ValueError: An argument is of the wrong type or out of range.
        """
        del validate_shape, caching_device, synchronization, aggregation
        who = type(self).__name__
        _refuse(
            who,
            collections=collections,
            variable_def=variable_def,
            import_scope=import_scope,
            constraint=constraint,
            distribute_strategy=distribute_strategy,
        )
        if (initial_value is None) == (shape is None):
            raise ValueError(f"{who} takes either initial_value or shape")
        if initial_value is not None:
            if initializer is not None:
                raise ValueError(f"{who}: initial_value and initializer both give the rows")
            initial_value = tf.cast(tf.convert_to_tensor(initial_value), tf.float32)
            shape = initial_value.shape
        ranks = communicator()
        self.global_shape = _checked_shape(who, shape)
        self.global_gpu_id, self.num_gpus = ranks.rank, ranks.size
        self._placement = placement_of(self.target_gpu, self.global_shape[0])
        self._own_keys = self._keys_of_rank(ranks.rank, ranks.size)
        ready_graph()
        super().__init__(
            name="Variable" if name is None else name,
            dim=self.global_shape[1],
            capacity=len(self._keys_of_rank(max(0, self.target_gpu), ranks.size)),
            dtype=tf.float32 if dtype is None else dtype,
            initializer=initializer,
            trainable=True if trainable is None else trainable,
            use_hashtable=False,
            slot_dtype=slot_dtype,
            rounding=rounding,
        )
        if initial_value is not None:
            self.replace_initializer(self._assign_all(initial_value))

    def _keys_of_rank(self, rank: int, size: int) -> range:
        rows = self.global_shape[0]
        if self.target_gpu == ALL_RANKS:
            return range(rank, rows, size)
        return range(rows if rank == self.target_gpu else 0)

    def _num_keys(self) -> int:
        return self.global_shape[0]

    _rows_to_scale_by = _num_keys

    def _table_shape(self) -> tf.TensorShape:
        return tf.TensorShape([len(self._own_keys), self.dim])

    def _assign_all(self, initial_value: tf.Tensor) -> tf.Operation:
        """Returns the op that creates the table and sets all rows of this rank."""
        with tf.name_scope(self.m_var_name + "/"), tf.control_dependencies([self.initializer]):
            keys = tf.range(self.global_shape[0], dtype=tf.int64)
            return native.ops.sok_table_assign(self.handle, keys, initial_value, name="Fill").op

    def _own_keys_tensor(self) -> tf.Tensor:
        own = self._own_keys
        return tf.range(own.start, own.stop, own.step, dtype=tf.int64)

    def key_map(self, indices: tf.Tensor) -> tf.Tensor:
        """Returns `indices`: a key is the same on every rank."""
        return indices


class DistributedVariable(FixedRows):
    """A table with a fixed number of rows; the row of key `i` is on rank `i % ranks`.

    Reading the variable as a tensor gives the rows of this rank: row `j` belongs to the key
    `j * ranks + rank`. Gradients flow through lookups, not through such a read.
    """

    target_gpu = ALL_RANKS

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        del no_copy
        return native.ops.sok_table_export(self.handle, dim=self.dim).values


class LocalizedVariable(FixedRows):
    """A table with a fixed number of rows, all of them on the rank `target_gpu`.

    Lookups give the same results as in a `DistributedVariable`, on every rank. Reading the variable as a
    tensor gives all rows on that rank and no rows on the others; every rank must run that read.
    """

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        dtype: tf.DType | None = None,
        variable_def: Any = None,
        import_scope: Any = None,
        constraint: Any = None,
        distribute_strategy: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
        initializer: Any = None,
        global_gpu_id: int | None = None,
        target_gpu: int | None = None,
        **record: Any,
    ) -> None:
        """Creates the variable. The arguments up to `initializer` are those of `DistributedVariable`.

        So are `slot_dtype` and `rounding`, in `record`. `global_gpu_id` is None or this rank; `target_gpu` is
        the rank that holds the rows.

        Raises:
          TypeError, ValueError: As for `DistributedVariable`; `target_gpu` is None or not a rank; or
            `global_gpu_id` is not this rank.
        """
        if target_gpu is None:
            raise ValueError("LocalizedVariable needs target_gpu, the rank that holds its rows")
        if global_gpu_id is not None and global_gpu_id != communicator().rank:
            raise ValueError(f"This is rank {communicator().rank}, not global_gpu_id={global_gpu_id}")
        self.target_gpu = checked_rank(target_gpu)
        super().__init__(
            initial_value,
            trainable,
            collections,
            validate_shape,
            caching_device,
            name,
            dtype,
            variable_def,
            import_scope,
            constraint,
            distribute_strategy,
            synchronization,
            aggregation,
            shape,
            initializer,
            **record,
        )

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        del no_copy
        return self.sparse_read(self._own_keys_tensor())


def _refuse(who: str, **arguments: Any) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(f"{who}: {given[0]} must be None; the rows are in the variable's own table")


def _checked_shape(who: str, shape: Any) -> tuple[int, int]:
    shape = tf.TensorShape(shape)
    if shape.rank != 2 or not shape.is_fully_defined() or 0 in shape.as_list():
        raise ValueError(f"{who} needs a shape with two known dimensions, [rows, columns], not {shape}")
    rows, columns = shape.as_list()
    return rows, columns
