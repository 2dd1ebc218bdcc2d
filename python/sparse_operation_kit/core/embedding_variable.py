"""EmbeddingVariable: a hash table of rows that TensorFlow takes for a variable."""

import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import handle_data_util, resource_variable_ops
from tensorflow.python.training.saving import saveable_object

from sparse_operation_kit import native
from sparse_operation_kit.core import (
    graph_ops,
    initialize,
    initializers,
    replacements,
    row_lookup,
    row_policies,
)
from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.core.replacement_table import OF_EMBEDDING_VARIABLES

# Of a row, as in cc/table.
MAX_DIM = 2**28
KEY_DTYPES = (tf.int64, tf.int32, tf.uint32)


class _OwnDevice(str):
    """A device string that equals only itself.

    `tf.nn.embedding_lookup_sparse` compares a variable's device with that of the ids. Where they are the same
    it reads the variable densely instead of looking rows up, which a hash table cannot bear.
    """

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


class EmbeddingVariable(resource_variable_ops.BaseResourceVariable, saveable_object.SaveableObject):
    """Rows of `dim` floats under 64-bit keys, in a table that grows as keys come.

    It is a `tf.Variable` in `GLOBAL_VARIABLES` and, where trainable, in `TRAINABLE_VARIABLES`:
    `tf.compat.v1.global_variables_initializer()` makes the empty table, `tf.nn.embedding_lookup` and
    `tf.nn.embedding_lookup_sparse` look rows up, `tf.gradients` gives `tf.IndexedSlices` over row numbers,
    and `tf.compat.v1.train.Saver` saves the rows, the optimizer's slots and its state. It has no dense value:
    reading it as a tensor is a `TypeError`, except for one without hashing, whose rows are all there. Rows of
    a table with a capacity are read by `read_value`, those of any table by `keys_and_rows`.

    Its initializer, and restoring it, run the `sok.Init` of the graph where that has not run in the session.
    """

    # Which rank holds which key, as `cc/placement` writes it. A subclass that wants it otherwise sets it
    # before it calls this class's __init__.
    _placement = "by_key"

    def __init__(
        self,
        name: str,
        dim: int,
        capacity: int | None = None,
        key_dtype: tf.DType = tf.int64,
        dtype: tf.DType = tf.float32,
        initializer: Any = None,
        trainable: bool = True,
        use_hashtable: bool = True,
        on_full: str = "error",
        admission: row_policies.CounterFilter | row_policies.CBFFilter | None = None,
        eviction: row_policies.GlobalStepEvict | row_policies.L2WeightEvict | None = None,
    ) -> None:
        """Makes the variable in the default graph.

        Args:
          name: Made unique in the graph; `m_var_name` is the unique name.
          dim: Floats of a row, in [1, 2^28].
          capacity: Rows on a rank. A new key beyond it is an error; None grows without bound.
          key_dtype: tf.int64, tf.int32 or tf.uint32; lookups take keys of this dtype.
          dtype: tf.float32, the only dtype of rows.
          initializer: None (uniform in [-0.05, 0.05)), a number, the name of a Keras initializer, a
            TensorFlow or Keras initializer whose elements are independent draws, or an `InitializerOption`.
          trainable: Whether it is in `TRAINABLE_VARIABLES`.
          use_hashtable: False takes the key for the row: keys are in [0, capacity * ranks), and all rows are
            there from the start. Needs a capacity.
          on_full: What a training lookup does with new keys beyond the capacity. "error": it fails, and
            nothing is inserted. "evict_lru": rows go whose last training lookup is longest ago; of several,
            those of the smallest keys. "evict_lfu": rows go that training lookups have seen least often; of
            several, as "evict_lru". Rows of the lookup itself stay; one that needs more rows than the
            capacity is an error. A gradient that arrives after its row has gone is dropped.
          admission: Which keys get rows: None (every key, in its first training lookup), a `CounterFilter`
            or a `CBFFilter`.
          eviction: Which rows go when a checkpoint is saved: None (none), a `GlobalStepEvict` or an
            `L2WeightEvict`.

        Raises:
          TypeError, ValueError: An argument is of the wrong type or out of range.
          RuntimeError: Eager execution.
        """
        if tf.executing_eagerly():
            raise RuntimeError(
                f"Embedding variable '{name}': eager execution is not supported; build a graph, as in "
                "`with tf.Graph().as_default():`"
            )
        _check_arguments(name, dim, capacity, key_dtype, dtype, use_hashtable, on_full, admission, eviction)
        graph = tf.compat.v1.get_default_graph()
        self.m_var_name = graph.unique_name(name, mark_as_used=False)
        self.dim = int(dim)
        self.capacity = capacity
        self.key_dtype = tf.as_dtype(key_dtype)
        self.use_hashtable = bool(use_hashtable)
        self._eviction = eviction
        option = (
            initializer
            if isinstance(initializer, row_policies.InitializerOption)
            else row_policies.InitializerOption(initializer)
        )
        rows = option.rows_to_scale_with if option is initializer and capacity is None else capacity
        row_initializer = initializers.row_initializer(option.initializer, self.m_var_name, rows, self.dim)

        ranks = communicator().size
        if capacity is not None and int(capacity) * ranks * self.dim * tf.float32.size >= 2**63:
            raise ValueError(
                f"Embedding variable '{self.m_var_name}': capacity {capacity} on each of {ranks} ranks, with "
                f"rows of {self.dim} floats, is more than 2^63 bytes"
            )
        shape = tf.TensorShape([None if capacity is None else capacity * ranks, self.dim])

        # What the initializer waits for, sok.Init for one, is nothing that every step should run again.
        with tf.control_dependencies(None):
            handle = native.ops.sok_table(shared_name=self.m_var_name, name=name)
        # Without it tf.while_loop would take the variable for one that has no gradient.
        handle_data_util.set_handle_data(handle, handle_data_util.create_handle_data(shape, tf.float32))
        with tf.name_scope(self.m_var_name + "/"):
            self._make_table = functools.partial(
                native.ops.sok_initialize_table,
                handle,
                dim=self.dim,
                capacity=capacity or 0,
                use_hashtable=self.use_hashtable,
                key_dtype=self.key_dtype,
                initializer=row_initializer.kind,
                initializer_args=list(row_initializer.args),
                initializer_seed=row_initializer.seed,
                placement=self._placement,
                **row_policies.policy_attributes(
                    on_full, admission, eviction, option.default_value_no_permission
                ),
            )
            with initialize.making_table() as made:
                initializer_op = self._make_table(name="Initializer")
                made.append(initializer_op)
            self._initializer_inputs = tuple(initializer_op.control_inputs)
            is_initialized = native.ops.sok_table_is_initialized(handle, name="IsInitialized")
        super().__init__(
            trainable=trainable,
            shape=shape,
            dtype=tf.float32,
            handle=handle,
            handle_name=self.m_var_name,
            unique_id=self.m_var_name,
            initializer_op=initializer_op,
            is_initialized_op=is_initialized,
            in_graph_mode=True,
        )
        collections = [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES]
        if trainable:
            collections.append(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
        ops.add_to_collections(collections, self)
        # Here and not at import: a process that only imports the library has TensorFlow as it was.
        replacements.install(*OF_EMBEDDING_VARIABLES)

    @property
    def evicts_by_step(self) -> bool:
        """Whether rows go for their age in steps."""
        return isinstance(self._eviction, row_policies.GlobalStepEvict) and bool(self._eviction.steps_to_live)

    @property
    def emb_handle(self) -> tf.Tensor:
        """The handle, under the name that the original SOK gives it."""
        return self.handle

    @property
    def device(self) -> str:
        """Where the handle is: a device string that equals no other."""
        return _OwnDevice(self.handle.device)

    def size(self, name: str | None = None) -> tf.Tensor:
        """Returns the number of rows on this rank, a scalar int64 tensor."""
        return native.ops.sok_table_size(self.handle, name=name)

    def total_count(self, name: str | None = None) -> tf.Tensor:
        """Returns the shape of what this rank holds, an int64 tensor `[size(), dim]`; DeepRec's name."""
        rows = native.ops.sok_table_size(self.handle)
        return tf.stack([rows, tf.constant(self.dim, tf.int64)], name=name)

    def evict(self, keys: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Takes keys out of the table: their rows, slots and counts.

        Args:
          keys: Of `key_dtype`, any shape; those that are not there are passed over. Over several ranks each
            rank runs it, and takes out those of the keys that it owns.
          name: Of the op.

        Returns:
          The number of rows that went on this rank, a scalar int64 tensor; running it does the work.

        Raises:
          ValueError: The variable has no hash table: every row is always there.
        """
        if not self.use_hashtable:
            raise ValueError(
                f"Embedding variable '{self.m_var_name}' cannot evict rows: without hashing every row is "
                "always there"
            )
        keys = tf.reshape(tf.convert_to_tensor(keys, self.key_dtype), [-1])
        return native.ops.sok_table_evict(self.handle, tf.cast(keys, tf.int64), name=name)

    def is_initialized(self, name: str | None = None) -> tf.Tensor:
        """Returns whether the initializer or a restore has run, a scalar bool tensor."""
        return native.ops.sok_table_is_initialized(self.handle, name=name)

    def sparse_read(self, indices: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Returns the rows of the keys `indices`, of any shape; a key that is not there gets its row.

        This is what `tf.gather` and `tf.nn.embedding_lookup` call. Keys of a narrower integer dtype than
        `key_dtype` are widened, for TensorFlow makes int32 tensors of Python numbers.
        """
        keys = tf.convert_to_tensor(indices)
        if self.key_dtype == tf.int64 and keys.dtype in (tf.int32, tf.uint32):
            keys = tf.cast(keys, tf.int64)
        return row_lookup.look_up(self, keys, name)

    def keys_and_rows(self, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what this rank holds, `(keys, rows)`: `[n]` of `key_dtype` and float32 `[n, dim]`.

        They stand in the order of the row numbers. Differentiating them is a TypeError.
        """
        exported = native.ops.sok_table_export(self.handle, dim=self.dim, name=name)
        return tf.cast(exported.keys, self.key_dtype), exported.values

    def read_value(self) -> tf.Tensor:
        """Returns the rows as one tensor.

        Of a table without hashing it is [capacity * ranks, dim], by key. Of a table with hashing and a
        capacity it is [capacity, dim], what this rank holds by row number, zeros where no key has the row;
        differentiating it is a TypeError.

        Raises:
          TypeError: The table has hashing and no capacity.
        """
        if not self.use_hashtable or self.capacity is None:
            return self._read_variable_op()
        exported = native.ops.sok_table_export(self.handle, dim=self.dim)
        shape = tf.constant([self.capacity, self.dim], tf.int64)
        return tf.scatter_nd(exported.rows[:, tf.newaxis], exported.values, shape)

    def value(self) -> tf.Tensor:
        """Returns all rows of a table without hashing, [capacity * ranks, dim], by key."""
        return self._read_variable_op()

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        del no_copy
        if self.use_hashtable:
            self._refuse(
                "has no dense value: it holds the rows of the keys that came so far"
                + ("" if self.capacity is None else ", which read_value() gives by row number")
            )
        # tf.range has no uint32.
        return self.sparse_read(tf.cast(tf.range(self.shape[0], dtype=tf.int64), self.key_dtype))

    def _dense_var_to_tensor(
        self, dtype: Any = None, name: str | None = None, as_ref: bool = False
    ) -> tf.Tensor:
        del name, as_ref
        if dtype is not None and not tf.as_dtype(dtype).is_compatible_with(self.dtype):
            self._refuse(f"of dtype float32 cannot become a tensor of dtype {tf.as_dtype(dtype).name}")
        return self._read_variable_op()

    def _as_graph_element(self) -> tf.Tensor | None:
        # What Session.run fetches for the variable. TensorFlow also asks for it where it only wants to know
        # the graph, and takes None for an answer, so a hash table must not raise here.
        if self.use_hashtable:
            return None
        if self._graph_element is None:  # type: ignore[has-type]
            with tf.control_dependencies(None), tf.name_scope(self.m_var_name + "/"):
                self._graph_element = self._read_variable_op()
        return self._graph_element

    def eval(self, session: tf.compat.v1.Session | None = None) -> Any:
        """Returns all rows of a table without hashing, a float32 array [capacity * ranks, dim]."""
        return self._read_variable_op().eval(session=session)

    def checked_keys(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the keys of a lookup; a subclass that has no others adds its check of them."""
        return keys

    def _ref(self) -> "EmbeddingVariable":
        # The optimizers of tf.compat.v1.train ask variables that are no VarHandleOp for it, and differentiate
        # with respect to what they get.
        return self

    def _refuse(self, why: str) -> NoReturn:
        raise TypeError(
            f"Embedding variable '{self.m_var_name}' {why}. Look rows up with tf.nn.embedding_lookup, or "
            "write all of them out with sok.Saver"
        )

    def _refuse_assignment(self, *args: Any, **kwargs: Any) -> NoReturn:
        del args, kwargs
        self._refuse("cannot be assigned as a tensor; sok.Saver().load_embedding_values sets rows")

    assign = assign_add = assign_sub = _refuse_assignment
    scatter_add = scatter_sub = scatter_update = scatter_max = scatter_min = _refuse_assignment
    scatter_mul = scatter_div = batch_scatter_update = _refuse_assignment
    scatter_nd_add = scatter_nd_sub = scatter_nd_update = _refuse_assignment
    load = count_up_to = _strided_slice_assign = _refuse_assignment

    def gather_nd(self, indices: Any, name: str | None = None) -> NoReturn:
        """Refuses: rows have keys, not positions."""
        del indices, name
        self._refuse("has no gather_nd")

    def to_proto(self, export_scope: str | None = None) -> None:
        """Returns None, as a MetaGraph cannot describe the variable to TensorFlow alone."""
        del export_scope

    # What tf.compat.v1.train.Saver asks of a SaveableObject.
    optional_restore = False

    @property
    def checkpoint_key(self) -> str:
        """The name, in TensorFlow's checkpoints, of the string that says where the table's own is."""
        return f"{self.m_var_name}/checkpoint"

    @property
    def specs(self) -> list[saveable_object.SaveSpec]:
        """What TensorFlow's checkpoints hold of the table. Savers' wrapped methods give it its value."""
        return [
            saveable_object.SaveSpec(
                self._refuse_specs, "", self.checkpoint_key, tf.string, device=self.handle.device
            )
        ]

    def _refuse_specs(self) -> NoReturn:
        self._refuse("can be saved by tf.compat.v1.train.Saver with TensorFlow's own builders only")

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> NoReturn:
        """Refuses: Savers' wrapped methods restore tables."""
        del restored_tensors, restored_shapes
        self._refuse("can be restored by tf.compat.v1.train.Saver with TensorFlow's own builders only")

    def make_if_missing(self) -> tf.Operation:
        """Returns the op that makes the empty table where the initializer has not run."""
        with tf.control_dependencies(self._initializer_inputs), initialize.making_table() as made:
            made.append(self._make_table(keep_existing=True, name="MakeTable"))
        return made[0]

    def replace_initializer(self, initializer_op: tf.Operation) -> None:
        """Makes `initializer_op` what initializes the variable."""
        self._initializer_op = initializer_op


def is_embedding_variable(variable: Any) -> bool:
    """Whether `variable` is an embedding variable. Any object may be asked about."""
    return isinstance(variable, EmbeddingVariable)


@ops.RegisterGradient(graph_ops.TABLE_EXPORT)
def _export_gradient(op: tf.Operation, *gradients: tf.Tensor | None) -> NoReturn:
    del gradients
    name = graph_ops.table_of(graph_ops.inputs_of(op)["handle"]).get_attr("shared_name").decode()
    raise TypeError(
        f"Embedding variable '{name}' cannot be differentiated through what read_value() or keys_and_rows() "
        "gives. Look rows up with embedding_lookup, or put tf.stop_gradient around them"
    )


def _check_arguments(
    name: Any,
    dim: Any,
    capacity: Any,
    key_dtype: Any,
    dtype: Any,
    use_hashtable: Any,
    on_full: Any,
    admission: Any,
    eviction: Any,
) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(f"An embedding variable's name must be a string that is not empty, not {name!r}")
    if name.endswith("/"):
        raise ValueError(f"An embedding variable's name must not end with a slash, as {name!r} does")
    who = f"Embedding variable '{name}'"
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(f"{who}: dim must be an int, not {dim!r}")
    if dim < 1:
        raise ValueError(f"{who}: dim must be at least 1, not {dim}")
    if dim > MAX_DIM:
        raise ValueError(f"{who}: dim must be at most {MAX_DIM}, not {dim}")
    if capacity is not None:
        if isinstance(capacity, bool) or not hasattr(capacity, "__index__"):
            raise TypeError(f"{who}: capacity must be an int or None, not {capacity!r}")
        if capacity < 1:
            raise ValueError(f"{who}: capacity must be at least 1, not {capacity}")
        if capacity >= 2**63:
            raise ValueError(f"{who}: capacity must be below 2^63, not {capacity}")
    elif not use_hashtable:
        raise ValueError(f"{who}: use_hashtable=False needs a capacity, as the key is the row")
    if key_dtype not in KEY_DTYPES:
        raise ValueError(f"{who}: key_dtype must be tf.int64, tf.int32 or tf.uint32, not {key_dtype!r}")
    if dtype != tf.float32:
        raise ValueError(f"{who}: rows are tf.float32, not {dtype!r}; cast what a lookup returns")
    row_policies.check_policies(who, capacity, use_hashtable, on_full, admission, eviction)
