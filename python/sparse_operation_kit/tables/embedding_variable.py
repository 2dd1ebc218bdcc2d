"""EmbeddingVariable: a hash table of rows that TensorFlow treats as a variable."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.arguments import whole_number
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import OF_EMBEDDING_VARIABLES, Part
from sparse_operation_kit.compat.internals import (
    BaseOfLookedUpVariables,
    ops,
    resource_variable_ops,
    saveable_object,
    set_handle_data,
)
from sparse_operation_kit.graphs import graph_keys, graph_ops
from sparse_operation_kit.ranks import initialize
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables import (
    initializers,
    key_statistics,
    row_assignment,
    row_lookup,
    row_policies,
    table_parts,
)
from sparse_operation_kit.tables.initializers import given_rows
from sparse_operation_kit.tables.storage_option import StorageOption, memory_attributes
from sparse_operation_kit.tables.table_device import Servers, on_device, place_table, servers_of_program

# The same limit as in cc/table.
MAX_DIM = 2**28
KEY_DTYPES = (tf.int64, tf.int32, tf.uint32)


class _OwnDevice(str):
    """A device string that equals only itself.

    `tf.nn.embedding_lookup_sparse` compares a variable's device with that of the ids. If they are equal, it
    reads the whole variable as a dense tensor, which is impossible for a hash table.
    """

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


class EmbeddingVariable(BaseOfLookedUpVariables, saveable_object.SaveableObject):
    """A table of rows of `dim` floats with 64-bit keys, which grows with every new key.

    It is a `tf.Variable` in `GLOBAL_VARIABLES` and, if trainable, in `TRAINABLE_VARIABLES`.
    `tf.compat.v1.global_variables_initializer()` creates the empty table, `tf.nn.embedding_lookup` and
    `tf.nn.embedding_lookup_sparse` look rows up, `tf.gradients` returns `tf.IndexedSlices` over row numbers,
    and `tf.compat.v1.train.Saver` saves the rows, the optimizer's slots and its state. It has no dense value:
    reading it as a tensor raises `TypeError`, unless it has no hash table and so holds all rows.
    `read_value` reads the rows of a table with a capacity, `keys_and_rows` those of any table.

    Initializing or restoring the variable runs the graph's `sok.Init` if that has not run in the session.
    """

    # Which rank holds which key, as a placement string of `cc/placement`. Subclasses may set another value
    # before they call this class's __init__.
    _placement = "by_key"
    # Whether a Saver has restored it when no optimizer trained a table of its graph, and so without slots.
    restored_without_optimizer = False
    # The rule that trains it, and the rule's constant hyper-parameters: see `RestoreParts::trained_by`.
    trained_by = ""
    # Called once such a rule is known: what initializes the variable needs it.
    when_trained: Callable[[], None] | None = None

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
        *,
        memory: str | StorageOption = "device",
        row_arithmetic: bool = False,
        slot_dtype: tf.DType = tf.float32,
        rounding: str = "stochastic",
    ) -> None:
        """Creates the variable in the default graph.

        Args:
          name: Made unique in the graph; `m_var_name` is the unique name.
          dim: Number of floats in a row, in [1, 2^28].
          capacity: Maximum number of rows per rank; `on_full` says what happens beyond it. None: no limit.
          key_dtype: tf.int64, tf.int32 or tf.uint32; lookups take keys of this dtype.
          dtype: In which rows are kept: tf.float32, tf.bfloat16 or tf.float16. Lookups and updates compute in
            float32, and lookups give float32: the variable's own `dtype` is tf.float32.
          initializer: None (uniform in [-0.05, 0.05)), a number, a list of `dim` numbers (the initial row of
            every key) or of such lists (key `k` begins with number `k % rows`), the name of a Keras
            initializer, a TensorFlow or Keras initializer whose elements are independent draws, or an
            `InitializerOption`.
          trainable: Whether the variable is in `TRAINABLE_VARIABLES`.
          use_hashtable: False uses the key as the row number: keys are in [0, capacity * ranks), and all rows
            exist from the start. Needs a capacity.
          on_full: What a training lookup does with new keys beyond the capacity. "error": it fails and
            inserts nothing. "evict_lru": it evicts the rows whose last training lookup is longest ago; among
            equally old rows, those with the smallest keys. "evict_lfu": it evicts the rows that training
            lookups have seen least often; equally frequent rows are ordered as in "evict_lru". Rows of the
            lookup itself are not evicted; a lookup of more rows than the capacity fails. The gradient of a
            row that has been evicted is dropped.
          admission: Which keys get rows: None (every key, in its first training lookup), a `CounterFilter`
            or a `CBFFilter`.
          eviction: Which rows are evicted when a checkpoint is saved: None (none), a `GlobalStepEvict` or an
            `L2WeightEvict`.
          memory: Where a table on a GPU has its rows and slots. "device": in the GPU's memory. "host": in
            pinned host memory, which the GPU reads over its bus, for tables that do not fit; its keys stay in
            the GPU's memory. On a CPU both are the same. A `StorageOption` can also put a disk below the
            memory of a table on a CPU, and host memory below that of a GPU. Results are the same, and a
            checkpoint of one restores with the other. All ranks must use the same.
          row_arithmetic: Whether a key's initial row is row `key % default_value_dim` of a matrix, and some
            optimizers train each row by itself: see `sparse_operation_kit.deeprec.use_deeprec_arithmetic`.
          slot_dtype: In which the optimizer's slots are kept: tf.float32 or tf.bfloat16. Slots of one number
            a row are float32.
          rounding: How an update rounds rows and slots to 16 bits. "stochastic": to one of the two nearest
            numbers, at random, so that small changes are kept on average; the random bits are a function of
            the run's seed, the variable, the key, the column and the step. "nearest": changes below half of
            the distance between two numbers are lost.

        Raises:
          TypeError, ValueError: An argument is of the wrong type or out of range.
          RuntimeError: Execution is eager, or a strategy of `tf.distribute` with replicas is in use.
        """
        if tf.executing_eagerly():
            raise RuntimeError(
                f"Embedding variable '{name}': eager execution is not supported; build a graph, as in "
                "`with tf.Graph().as_default():`"
            )
        _refuse_strategies(name)
        _check_arguments(name, dim, capacity, key_dtype, use_hashtable, on_full, admission, eviction)
        _check_record(f"Embedding variable '{name}'", dtype, slot_dtype, rounding)
        graph = tf.compat.v1.get_default_graph()
        self.m_var_name = graph.unique_name(name, mark_as_used=False)
        self.dim = int(dim)
        self.capacity = capacity
        self.key_dtype = tf.as_dtype(key_dtype)
        self.row_dtype = tf.as_dtype(dtype)
        self.use_hashtable = bool(use_hashtable)
        self.row_arithmetic = bool(row_arithmetic)
        self._eviction = eviction
        self._keeps_frequency = admission is not None or on_full == "evict_lfu"
        option, initial_rows, given = self._initial_rows(initializer)
        is_filtered = admission is not None and admission.filter_freq > 0
        self.constant_initial_value = initializers.constant_value(
            initial_rows.kind,
            initial_rows.args,
            option.default_value_no_permission if is_filtered else None,
            self.row_dtype,
        )
        self.servers = self._servers()
        shape = self._table_shape()
        definition = dict(
            dim=self.dim,
            capacity=capacity or 0,
            use_hashtable=self.use_hashtable,
            key_dtype=self.key_dtype,
            placement=self._placement,
            **memory_attributes(f"Embedding variable '{name}'", memory),
            row_dtype=self.row_dtype,
            slot_dtype=slot_dtype,
            rounding=rounding,
            **row_policies.policy_attributes(
                on_full, admission, eviction, option.default_value_no_permission
            ),
        )
        handle = self._make_handle(name, shape, definition)
        with tf.name_scope(self.m_var_name + "/"):
            self._given_rows = given
            self._make_table = functools.partial(
                native.ops.sok_initialize_table,
                initializer=initial_rows.kind,
                initializer_args=list(initial_rows.args),
                initializer_seed=initial_rows.seed,
                initializer_rows=option.rows if self.row_arithmetic else 0,
                **definition,
            )
            initializer_op = self._make_parts("Initializer")
            # The same for all parts. Without servers the op makes the table itself.
            (makes, *_) = initializer_op.control_inputs if self._parts else [initializer_op]
            self._initializer_inputs = tuple(makes.control_inputs)
            is_initialized = self.is_initialized("IsInitialized")
        self._become_variable(trainable, shape, handle, initializer_op, is_initialized)
        collections = [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, graph_keys.TABLES]
        if trainable:
            collections.append(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
        ops.add_to_collections(collections, self)

    def _initial_rows(
        self, initializer: Any
    ) -> tuple[row_policies.InitializerOption, initializers.RowInitializer, Callable[[], tf.Tensor] | None]:
        is_option = isinstance(initializer, row_policies.InitializerOption)
        option = initializer if is_option else row_policies.InitializerOption(initializer)
        drawn = option.rows if self.row_arithmetic else 0
        given = given_rows(option.initializer, self.m_var_name, self.dim, drawn)
        if given is not None:
            return option, initializers.GIVEN, given
        rows = option.rows if is_option and self.capacity is None else self._rows_to_scale_by()
        of_keys = initializers.row_initializer(option.initializer, self.m_var_name, rows, self.dim)
        return option, of_keys, None

    def _initial_rows_on_host(self) -> list[tf.Tensor]:
        """Returns the given rows as an op that makes the table takes them.

        Each such op has draws of its own, which do not depend on whether another one has run.
        """
        if self._given_rows is None:
            return []
        with tf.device("/device:CPU:0"):
            return [self._given_rows()]

    def _rows_to_scale_by(self) -> int | None:
        """The number of rows that variance scaling uses."""
        return self.capacity

    def _num_keys(self) -> int:
        """The number of keys of a variable without a hash table, over all ranks."""
        return int(self.capacity or 0) * self._processes()

    def _processes(self) -> int:
        """The number of processes that have rows of the table."""
        return len(self.servers.devices) or communicator().size

    def _table_shape(self) -> tf.TensorShape:
        """The shape over all ranks."""
        if self.capacity is None:
            return tf.TensorShape([None, self.dim])
        rows = int(self.capacity) * self._processes()
        if rows * self.dim * tf.float32.size >= 2**63:
            raise ValueError(
                f"Embedding variable '{self.m_var_name}': capacity {self.capacity} on each of "
                f"{self._processes()} ranks, with rows of {self.dim} floats, is more than 2^63 bytes"
            )
        return tf.TensorShape([rows, self.dim])

    def _servers(self) -> Servers:
        servers = servers_of_program(self.m_var_name)
        if servers.devices and (self._placement != "by_key" or communicator().size > 1):
            raise ValueError(
                f"Embedding variable '{self.m_var_name}': a {type(self).__name__} on {communicator().size} "
                "ranks cannot be on parameter servers, which hold tables by key for workers that are no ranks"
            )
        return servers

    def _make_handle(self, name: str, shape: tf.TensorShape, definition: dict[str, Any]) -> tf.Tensor:
        self._parts = table_parts.parts_on_servers(self)
        # Without control dependencies: every step runs the handle's op, and must not run those again.
        with tf.control_dependencies(None):
            if self._parts:
                with on_device(self.servers.worker):
                    handle = native.ops.sok_describe_table(
                        shared_name=self.m_var_name,
                        ranks=len(self._parts),
                        gradient_dtype=initialize.gradient_dtype(),
                        name=name,
                        **definition,
                    )
                initialize.gradient_dtype(handle.op)
            else:
                handle = native.ops.sok_table(shared_name=self.m_var_name, name=name)
        place_table(handle.op, self.m_var_name)
        self._handle = handle
        # Without handle data, tf.while_loop would assume that the variable has no gradient.
        set_handle_data(handle, shape, tf.float32)
        return handle

    def _become_variable(
        self,
        trainable: bool,
        shape: tf.TensorShape,
        handle: tf.Tensor,
        initializer_op: tf.Operation,
        is_initialized: tf.Tensor,
    ) -> None:
        """Makes this object a variable for TensorFlow."""
        self._made_empty = initializer_op
        resource_variable_ops.BaseResourceVariable.__init__(
            self,
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
        # Not at import, so that importing the library alone does not change TensorFlow.
        replacements.install(*OF_EMBEDDING_VARIABLES)
        # TensorFlow imports Estimator when a program uses it.
        replacements.reach_new_modules(Part.SAVERS)

    @property
    def handles(self) -> list[tf.Tensor]:
        """The handles of the rows: one on each parameter server; without servers the variable's own."""
        return [part.handle for part in self._parts] or [self.handle]

    @property
    def evicts_by_step(self) -> bool:
        """Whether a save evicts rows by their age in steps."""
        return isinstance(self._eviction, row_policies.GlobalStepEvict) and bool(self._eviction.steps_to_live)

    @property
    def emb_handle(self) -> tf.Tensor:
        """The handle, under its name in the original SOK."""
        return self.handle

    @property
    def device(self) -> str:
        """The handle's device, as a string that equals no other string."""
        return _OwnDevice(self.handle.device)

    def size(self, name: str | None = None) -> tf.Tensor:
        """Returns the number of rows on this rank or on all servers, a scalar int64 tensor."""
        return table_parts.sum_of_parts(self, native.ops.sok_table_size, name)

    def total_count(self, name: str | None = None) -> tf.Tensor:
        """Returns an int64 tensor `[size(), dim]`, the shape of the rows on this rank. DeepRec's name."""
        rows = table_parts.sum_of_parts(self, native.ops.sok_table_size, None)
        return tf.stack([rows, tf.constant(self.dim, tf.int64)], name=name)

    def get_dynamic_shape(self, name: str | None = None) -> tf.Tensor:
        """Returns what `total_count` returns, under DeepRec's newer name."""
        return self.total_count(name)

    def export(self, name: str | None = None) -> key_statistics.Export:
        """Returns `(keys, values, versions, freqs)` of the `n` rows on this rank. DeepRec's function.

        `keys` are `[n]` of `key_dtype`, `values` float32 `[n, dim]`. `versions`, int64 `[n]`, are the steps
        of the rows' last updates; empty in a table without `GlobalStepEvict`. `freqs`, int64 `[n]`, are
        occurrences in training lookups; empty in a table without an admission filter or
        `on_full="evict_lfu"`.
        """
        return key_statistics.export(self, name)

    def get_frequency(self, ids: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Returns how often each of `ids` occurred in training lookups, int64 of their shape.

        Ids that a `CounterFilter` has not admitted are counted too. It is 0 for other ids without a row on
        this rank. The op reads the whole table: it is for inspecting, not for steps.

        Raises:
          ValueError: The table keeps no frequencies.
          TypeError: `ids` are not of `key_dtype`; int32 and uint32 ids of int64 keys are widened.
        """
        if not self._keeps_frequency:
            raise ValueError(
                f"Embedding variable '{self.m_var_name}' keeps no frequencies: a CounterFilter, a CBFFilter "
                "or on_full='evict_lfu' makes it count"
            )
        return key_statistics.frequency_of(self, ids, name)

    def get_version(self, ids: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Returns the step of the last update of each of `ids`, int64 of their shape.

        For ids that a `CounterFilter` has not admitted it is the step before their last lookup. It is -1 for
        other ids without a row on this rank. Steps are those of `GlobalStepEvict`: the global step before
        the update incremented it. The op reads the whole table.

        Raises:
          ValueError: The table does not keep steps.
          TypeError: As for `get_frequency`.
        """
        if not self.evicts_by_step:
            raise ValueError(
                f"Embedding variable '{self.m_var_name}' does not keep the steps of updates: "
                "GlobalStepEvict(steps_to_live) makes it do so"
            )
        return key_statistics.last_step_of(self, ids, name)

    def evict(self, keys: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Removes keys from the table, with their rows, slots and exact counts.

        Counts in the Bloom filter of a `CBFFilter` stay, so that a removed key may get a row again at once.

        Args:
          keys: A tensor of `key_dtype`, of any shape. Keys that are not in the table are ignored. With
            several ranks, every rank runs it and removes only the keys that it owns.
          name: The name of the op.

        Returns:
          The number of rows removed on this rank, a scalar int64 tensor; running it removes them.

        Raises:
          ValueError: The variable has no hash table, so its rows cannot be removed.
        """
        if not self.use_hashtable:
            raise ValueError(
                f"Embedding variable '{self.m_var_name}' cannot evict rows: without hashing every row is "
                "always there"
            )
        keys = tf.reshape(tf.convert_to_tensor(keys, self.key_dtype), [-1])
        keys = tf.cast(keys, tf.int64)
        return table_parts.sum_of_parts(
            self, lambda handle, name: native.ops.sok_table_evict(handle, keys, name=name), name
        )

    def assign_rows(self, keys: Any, rows: Any, name: str | None = None) -> tf.Tensor:
        """Sets the rows of keys, for example to pretrained ones; a key without a row gets one.

        Slots of rows that were there stay as they are, those of new rows are the optimizer's initial ones.
        Admission filters do not apply, and no other row is evicted. The counts of rows that were there do not
        change, and that of a new row begins at 0, also if a filter has counted its key. For
        `GlobalStepEvict`, a new row is as old as the table's last update. Any float32 is a value, NaN too.

        With several ranks, every rank runs the op, with the same keys, its own part of them, or none. Each
        row goes to the rank that owns its key. If several ranks give a row for a key, the lowest rank's
        counts.

        Args:
          keys: `[n]`, distinct: a tensor of `key_dtype`, or integers that it can hold. If `key_dtype` is
            int64, int32 and uint32 tensors are widened.
          rows: float32 `[n, dim]`. Arrays and lists of other numbers are converted.
          name: The name of the op.

        Returns:
          A scalar string tensor; running it sets the rows, and its value is `b'OK'`. On all ranks it raises
          InvalidArgumentError if a key occurs twice on a rank, shapes do not match, or a variable without a
          hash table does not have a key. A rank without room for its new rows raises
          ResourceExhaustedError. The table is then unchanged.

        Raises:
          TypeError: Keys or rows are of another dtype.
          ValueError: Known shapes do not match, or a key does not fit `key_dtype`.
        """
        return row_assignment.assign_rows(self, keys, rows, name)

    def is_initialized(self, name: str | None = None) -> tf.Tensor:
        """Returns whether the initializer or a restore has run, a scalar bool tensor."""
        check = native.ops.sok_table_is_initialized
        if not self._parts:
            return check(self.handle, name=name)
        with on_device(self.servers.worker):
            return tf.reduce_all(tf.stack(table_parts.of_parts(self, check)), name=name)

    def sparse_read(self, indices: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Returns the rows of the keys `indices`, which have any shape; a key without a row gets one.

        `tf.gather` and `tf.nn.embedding_lookup` call it. If `key_dtype` is int64, int32 and uint32 keys are
        widened, because TensorFlow converts Python numbers to int32 tensors.

        Raises:
          TypeError: The keys are of another dtype.
        """
        keys = tf.convert_to_tensor(indices)
        if self.key_dtype == tf.int64 and keys.dtype in (tf.int32, tf.uint32):
            keys = tf.cast(keys, tf.int64)
        return row_lookup.look_up(self, keys, name)

    def keys_and_rows(self, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the `(keys, rows)` on this rank: `[n]` of `key_dtype` and float32 `[n, dim]`.

        They are in the order of the row numbers; on parameter servers those of all parts, one after another.
        Differentiating them raises TypeError.
        """
        found = table_parts.concatenated(
            self, lambda handle: native.ops.sok_table_export(handle, dim=self.dim, name=name)
        )
        return tf.cast(found.keys, self.key_dtype), found.values

    def read_value(self) -> tf.Tensor:
        """Returns the rows as one tensor.

        Without a hash table, the shape is [capacity * ranks, dim], indexed by key. With a hash table and a
        capacity, it is [capacity, dim], the rows of this rank indexed by row number, with zeros where no key
        has the row; differentiating that raises TypeError.

        Raises:
          TypeError: The variable has a hash table without a capacity.
        """
        if not self.use_hashtable or self.capacity is None:
            return self._read_variable_op()
        exported = native.ops.sok_table_export(self.handle, dim=self.dim)
        shape = tf.constant([self.capacity, self.dim], tf.int64)
        return tf.scatter_nd(exported.rows[:, tf.newaxis], exported.values, shape)

    def value(self) -> tf.Tensor:
        """Returns all rows of a variable without a hash table, [capacity * ranks, dim], indexed by key."""
        return self._read_variable_op()

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        del no_copy
        if self.use_hashtable:
            self._refuse(
                "has no dense value: it holds the rows of the keys seen so far"
                + ("" if self.capacity is None else ", which read_value() returns by row number")
            )
        # tf.range has no uint32.
        return self.sparse_read(tf.cast(tf.range(self.shape[0], dtype=tf.int64), self.key_dtype))

    def _dense_var_to_tensor(
        self, dtype: Any = None, name: str | None = None, as_ref: bool = False
    ) -> tf.Tensor:
        del as_ref
        try:
            if dtype is not None and not tf.as_dtype(dtype).is_compatible_with(self.dtype):
                self._refuse(f"of dtype float32 cannot become a tensor of dtype {tf.as_dtype(dtype).name}")
            return self._read_variable_op()
        except TypeError as error:
            # TensorFlow numbers the names of a list's tensors, and drops the text of their TypeErrors.
            if name is not None and re.search("_[0-9]+$", name):
                raise NotImplementedError(*error.args) from None
            raise

    def _as_graph_element(self) -> tf.Tensor | None:
        # The tensor that Session.run fetches for the variable. TensorFlow also calls this only to find the
        # graph, and then accepts None, so a hash table must not raise here.
        if self.use_hashtable:
            return None
        if self._graph_element is None:  # type: ignore[has-type]
            # It is kept, so it is no lookup of a function that is recomputed.
            apart = row_lookup.made_by(None)
            with apart, tf.control_dependencies(None), tf.name_scope(self.m_var_name + "/"):
                self._graph_element = self._read_variable_op()
        return self._graph_element

    def eval(self, session: tf.compat.v1.Session | None = None) -> Any:
        """Returns all rows of a variable without a hash table, a float32 array [capacity * ranks, dim]."""
        return self._read_variable_op().eval(session=session)

    def _ref(self) -> EmbeddingVariable:
        # The optimizers of tf.compat.v1.train call this for variables that are not a VarHandleOp, and
        # differentiate with respect to the result.
        return self

    def _refuse(self, why: str) -> NoReturn:
        raise TypeError(
            f"Embedding variable '{self.m_var_name}' {why}. Look rows up with tf.nn.embedding_lookup, those "
            "of several tables with sok.group_embedding_lookup, or write all of them to files with sok.Saver"
        )

    def _refuse_assignment(self, *args: Any, **kwargs: Any) -> NoReturn:
        del args, kwargs
        self._refuse("cannot be assigned as a tensor; assign_rows(keys, rows) sets the rows of keys")

    assign = assign_add = assign_sub = _refuse_assignment
    scatter_add = scatter_sub = scatter_update = scatter_max = scatter_min = _refuse_assignment
    scatter_mul = scatter_div = batch_scatter_update = _refuse_assignment
    scatter_nd_add = scatter_nd_sub = scatter_nd_update = scatter_nd_max = scatter_nd_min = _refuse_assignment
    load = count_up_to = _strided_slice_assign = _refuse_assignment
    __iadd__ = __isub__ = __imul__ = __idiv__ = __itruediv__ = __irealdiv__ = __ipow__ = _refuse_assignment
    # What functions such as tf.compat.v1.scatter_update call with the op that they have made.
    _lazy_read = _refuse_assignment

    def _refuse_python_value(self, *args: Any, **kwargs: Any) -> NoReturn:
        del args, kwargs
        self._refuse("has no value in Python while a graph is built; a session runs keys_and_rows()")

    numpy = __array__ = __bool__ = __nonzero__ = _refuse_python_value
    __int__ = __long__ = __float__ = __complex__ = _refuse_python_value

    def __iter__(self) -> Any:
        """Iterates over the parts on parameter servers. Raises TypeError without: a table is no sequence."""
        if self._parts:
            return iter(self._parts)
        self._refuse("cannot be iterated over; keys_and_rows() returns its keys and rows")

    def __deepcopy__(self, memo: Any) -> NoReturn:
        """Raises TypeError: a name in a graph has one table."""
        del memo
        self._refuse("cannot be copied; assign_rows(keys, rows) sets the rows of another one")

    def initialized_value(self) -> NoReturn:
        """Raises TypeError: rows begin when their keys are looked up."""
        self._refuse_initial_value()

    @property
    def initial_value(self) -> NoReturn:
        """Raises TypeError: rows begin when their keys are looked up."""
        self._refuse_initial_value()

    def _refuse_initial_value(self) -> NoReturn:
        self._refuse("has no initial value: a row begins when its key is first looked up in training")

    def gather_nd(self, indices: Any, name: str | None = None) -> NoReturn:
        """Raises TypeError: rows have keys, not positions."""
        del indices, name
        self._refuse("has no gather_nd")

    def to_proto(self, export_scope: str | None = None) -> None:
        """Returns None: a MetaGraph has the variable in another collection (`tables/meta_graphs.py`)."""
        del export_scope

    # The interface of a SaveableObject, for tf.compat.v1.train.Saver.
    optional_restore = False

    @property
    def specs(self) -> list[saveable_object.SaveSpec]:
        """The table's entry in TensorFlow's checkpoints, a string that says where the table's files are.

        The wrapped methods of Savers set its value.
        """
        return [
            saveable_object.SaveSpec(
                self._refuse_specs, "", self.m_var_name, tf.string, device=self.handle.device
            )
        ]

    def _refuse_specs(self) -> NoReturn:
        self._refuse("can be saved by tf.compat.v1.train.Saver with TensorFlow's own builders only")

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> NoReturn:
        """Raises TypeError: the wrapped methods of Savers restore tables instead."""
        del restored_tensors, restored_shapes
        self._refuse("can be restored by tf.compat.v1.train.Saver with TensorFlow's own builders only")

    def make_if_missing(self, for_restore: bool = False) -> tf.Operation:
        """Returns an op that creates the empty table if the initializer has not run.

        Args:
          for_restore: Whether a restore follows. Workers of parameter servers do not see the table before.
        """
        for_restore = for_restore and bool(self._parts)
        with tf.control_dependencies(self._initializer_inputs):
            return self._make_parts("MakeTable", keep_existing=True, for_restore=for_restore)

    def _make_parts(self, name: str, **arguments: Any) -> tf.Operation:
        """Returns an op that makes the table, or its part on each server."""
        devices = self.servers.devices
        with initialize.making_table(devices) as made:
            rows = self._initial_rows_on_host()
            if not devices:
                made.append(self._make_table(self.handle, rows, name=name, **arguments))
                return made[0]
            for rank, part in enumerate(self._parts):
                with on_device(part.device):
                    made.append(
                        self._make_table(part.handle, rows, rank=rank, ranks=len(devices), **arguments)
                    )
        with on_device(self.servers.worker):
            return table_parts.all_of(made, name)

    @property
    def begins_empty(self) -> bool:
        """Whether the op that initializes the variable makes an empty table."""
        return self._initializer_op is self._made_empty

    def replace_initializer(self, initializer_op: tf.Operation) -> None:
        """Sets the op that initializes the variable."""
        self._initializer_op = initializer_op


def _refuse_strategies(name: Any) -> None:
    """Refuses strategies that make copies of variables, or place them, as a table is not a tensor."""
    if not tf.distribute.has_strategy():
        return
    strategy = type(tf.distribute.get_strategy()).__name__
    if strategy.startswith("OneDeviceStrategy"):
        return
    if strategy.startswith("ParameterServerStrategy"):
        instead = "in the scope of tf.compat.v1.train.replica_device_setter, which puts it on all servers"
    else:
        instead = (
            "and start one process for each device with horovodrun. The processes share the rows of the "
            "table, and sok.DistributedOptimizer averages the gradients of other variables"
        )
    raise RuntimeError(
        f"Embedding variable '{name}' cannot be made in the scope of a {strategy}: make it without "
        f"tf.distribute, {instead}"
    )


def is_embedding_variable(variable: Any) -> bool:
    """Returns whether `variable`, which may be any object, is an embedding variable."""
    return isinstance(variable, EmbeddingVariable)


@ops.RegisterGradient(graph_ops.TABLE_SNAPSHOT)
@ops.RegisterGradient(graph_ops.TABLE_EXPORT)
def _export_gradient(op: tf.Operation, *gradients: tf.Tensor | None) -> NoReturn:
    del gradients
    name = graph_ops.table_of(graph_ops.inputs_of(op)["handle"]).get_attr("shared_name").decode()
    raise TypeError(
        f"Embedding variable '{name}' cannot be differentiated through the result of read_value(), "
        "keys_and_rows() or export(). Look rows up with embedding_lookup, or apply tf.stop_gradient to them"
    )


def _check_arguments(
    name: Any,
    dim: Any,
    capacity: Any,
    key_dtype: Any,
    use_hashtable: Any,
    on_full: Any,
    admission: Any,
    eviction: Any,
) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(f"An embedding variable's name must be a non-empty string, not {name!r}")
    if name.endswith("/"):
        raise ValueError(f"An embedding variable's name must not end with a slash, as {name!r} does")
    who = f"Embedding variable '{name}'"
    whole_number(dim, f"{who}: dim")
    if dim > MAX_DIM:
        raise ValueError(f"{who}: dim must be at most {MAX_DIM}, not {dim}")
    if capacity is not None:
        whole_number(capacity, f"{who}: capacity", kind="an int or None")
        if capacity >= 2**63:
            raise ValueError(f"{who}: capacity must be below 2^63, not {capacity}")
    elif not use_hashtable:
        raise ValueError(f"{who}: use_hashtable=False needs a capacity, as the key is the row")
    if key_dtype not in KEY_DTYPES:
        raise ValueError(f"{who}: key_dtype must be tf.int64, tf.int32 or tf.uint32, not {key_dtype!r}")
    row_policies.check_policies(who, capacity, use_hashtable, on_full, admission, eviction)


def _check_record(who: str, dtype: Any, slot_dtype: Any, rounding: Any) -> None:
    if dtype not in (tf.float32, tf.bfloat16, tf.float16):
        raise ValueError(f"{who}: dtype must be tf.float32, tf.bfloat16 or tf.float16, not {dtype!r}")
    if slot_dtype == tf.float16:
        raise ValueError(f"{who}: slot_dtype tf.float16 would lose squares below 6e-8; use tf.bfloat16")
    if slot_dtype not in (tf.float32, tf.bfloat16):
        raise ValueError(f"{who}: slot_dtype must be tf.float32 or tf.bfloat16, not {slot_dtype!r}")
    if rounding not in ("stochastic", "nearest"):
        raise ValueError(f"{who}: rounding must be 'stochastic' or 'nearest', not {rounding!r}")
