"""DistributedEmbedding: a list of embedding layers, whose tables are spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.arguments import as_signed
from sparse_operation_kit.compat.internals import context
from sparse_operation_kit.dist_model_parallel import lookups, worker_lookups
from sparse_operation_kit.dist_model_parallel.inputs import FlatIds, LayerCall, flat_ids
from sparse_operation_kit.dist_model_parallel.keras import FloatLayer, keras
from sparse_operation_kit.dist_model_parallel.layout import Group, cut_name, replica_name
from sparse_operation_kit.dist_model_parallel.placement import Piece
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy, TableOfLayer
from sparse_operation_kit.dist_model_parallel.weights import Weights
from sparse_operation_kit.optimizers import dense_updates
from sparse_operation_kit.ranks import exchange_names
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables.initializers import RowInitializer, row_initializer

# The most elements that are drawn at once, unless a row is longer.
_BLOCK = 2**22


def initial_value(pieces: Sequence[Piece], tables: Sequence[TableOfLayer], columns: int) -> Callable:
    """Returns a function without arguments that computes a variable's initial value.

    The value at a row and column of a table depends only on the table's number, its initializer and the seed.
    The seed is the initializer's, else that of the graph or of `tf.random.set_seed`, else 0. So pieces are
    parts of the same table on any number of ranks. An initializer that is not one of Keras' is called for
    the whole table.

    Args:
      pieces: The variable's pieces, sorted by their first row; empty if it has no rows.
      tables: All tables of the layer; `Piece.table` is an index into them.
      columns: The variable's number of columns.
    """

    def value() -> tf.Tensor:
        if not pieces:
            return tf.zeros([0, columns])
        return tf.concat([_of_piece(piece, tables[piece.table]) for piece in pieces], axis=0)

    return value


def _of_piece(piece: Piece, of_layer: TableOfLayer) -> tf.Tensor:
    table = of_layer.table
    who = f"{piece.table} ('{table.name}')"
    initializer = _instance(of_layer.initializer)
    try:
        known = row_initializer(initializer, who, table.rows, table.columns)
    except (TypeError, ValueError):
        return _of_other(initializer, piece, of_layer)
    if known.kind == "constant":
        shape = [piece.rows[1] - piece.rows[0], piece.columns[1] - piece.columns[0]]
        return tf.fill(shape, tf.constant(known.args[0], tf.float32))
    block = max(1, _BLOCK // table.columns)
    first, last = piece.rows[0] // block, (piece.rows[1] - 1) // block
    seed = known.seed or _global_seed()

    def rows_of(number: Any) -> tf.Tensor:
        drawn = _drawn(known, [min(block, table.rows), table.columns], seed, piece.table, number)
        begin = tf.maximum(piece.rows[0] - number * block, 0)
        end = tf.minimum(piece.rows[1] - number * block, block)
        return drawn[begin:end, piece.columns[0] : piece.columns[1]]

    if first == last:
        return rows_of(tf.constant(first, tf.int64))
    width = piece.columns[1] - piece.columns[0]
    blocks = tf.TensorArray(
        tf.float32, size=last - first + 1, infer_shape=False, element_shape=tf.TensorShape([None, width])
    )
    _, blocks = tf.while_loop(
        lambda number, blocks: number <= last,
        lambda number, blocks: (number + 1, blocks.write(tf.cast(number - first, tf.int32), rows_of(number))),
        [tf.constant(first, tf.int64), blocks],
        parallel_iterations=1,
    )
    rows = blocks.concat()
    rows.set_shape([piece.rows[1] - piece.rows[0], width])
    return rows


def _drawn(known: RowInitializer, shape: list[int], seed: int, table: int, block: tf.Tensor) -> tf.Tensor:
    """Draws a block of whole rows from the distribution of one of Keras' initializers."""
    # A generator takes two numbers as its seed: the program's, and one for the table and the block.
    seeds = tf.stack([tf.constant(as_signed(seed), tf.int64), tf.constant(table << 32, tf.int64) + block])
    a, b = known.args
    if known.kind == "uniform":
        return tf.random.stateless_uniform(shape, seeds, a, b)
    draw = tf.random.stateless_normal if known.kind == "normal" else tf.random.stateless_truncated_normal
    return draw(shape, seeds, a, b)


def _of_other(initializer: Any, piece: Piece, of_layer: TableOfLayer) -> tf.Tensor:
    table = of_layer.table
    if not callable(initializer):
        raise TypeError(f"Table {piece.table} ('{table.name}'): {initializer!r} is not an initializer")
    rows = tf.convert_to_tensor(initializer([table.rows, table.columns], dtype=tf.float32), tf.float32)
    if not rows.shape.is_compatible_with([table.rows, table.columns]):
        raise ValueError(
            f"Table {piece.table} ('{table.name}'): the initializer returns the shape {rows.shape}, not "
            f"{[table.rows, table.columns]}"
        )
    return rows[piece.rows[0] : piece.rows[1], piece.columns[0] : piece.columns[1]]


def _instance(initializer: Any) -> Any:
    """Returns an initializer, which Keras makes if it is given as a name or a config."""
    if isinstance(initializer, (str, dict)) and keras is not None:
        return keras.initializers.get(initializer)
    return initializer() if isinstance(initializer, type) else initializer


def _global_seed() -> int:
    seed = context.global_seed() if tf.executing_eagerly() else tf.compat.v1.get_default_graph().seed
    return 0 if seed is None else int(seed)


# The most elements of a table to move at once.
_CHUNK = 134217728
_BUILD_FIRST = "call it, or its `build()`, first, and in a session initialize its variables"


class DistributedEmbedding(FloatLayer):
    """Looks up inputs in the tables of embedding layers, which are spread over the ranks.

    `layer(inputs)` takes a list of inputs, the ids of this rank's samples, and returns a list of what the
    plain layers return for them. Each is a dense tensor of ids, a RaggedTensor or, if its table has a
    combiner, a SparseTensor:

        tables = [dmp.Embedding(1000, 16, combiner="sum") for _ in range(26)]
        vectors = dmp.DistributedEmbedding(tables)(inputs)  # 26 tensors [batch, 16]

    All ranks build the same layer, and run it in the same steps. Their batches may differ. Of the embedding
    layers only sizes, combiners and initializers are used.

    The gradients of tables that are distributed or sliced are sums over all ranks, on the rank that has the
    rows; those of replicated tables are this rank's own. Train with this package's `DistributedOptimizer` or
    `DistributedGradientTape`, which make both averages, as Horovod's do.

    Attributes:
      strategy: where the tables are, a `DistEmbeddingStrategy`.
      dp_input: the argument.
    """

    def __init__(
        self,
        embeddings: Sequence[Any],
        strategy: str = "basic",
        column_slice_threshold: int | None = None,
        row_slice_threshold: int | None = None,
        dp_input: bool = True,
        input_table_map: Sequence[int] | None = None,
        data_parallel_threshold: int | None = None,
        *,
        gpu_embedding_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Places the tables. Variables are made when the layer is first called or built.

        Args:
          embeddings: embedding layers without weights.
          strategy, column_slice_threshold, row_slice_threshold, input_table_map, data_parallel_threshold: see
            `DistEmbeddingStrategy`.
          dp_input: whether inputs are the ids of this rank's samples. If not, a rank takes the inputs
            `strategy.input_ids_list[rank]` of the whole batch, each [batch] or [batch, hotness]. The number
            of ranks divides the batch.
          gpu_embedding_size: has no effect; the device of an engine is chosen for the whole process.
          **kwargs: arguments of every Keras layer: `name`, `dtype`, `trainable`.

        Raises:
          TypeError, ValueError: an argument is of the wrong type or out of range.
        """
        del gpu_embedding_size
        super().__init__(**kwargs)
        self.strategy = DistEmbeddingStrategy(
            embeddings,
            communicator().size,
            strategy,
            input_table_map,
            column_slice_threshold,
            row_slice_threshold,
            data_parallel_threshold,
        )
        self._arguments = {
            "strategy": self.strategy.strategy,
            "column_slice_threshold": self.strategy.options.column_slice_threshold,
            "row_slice_threshold": self.strategy.options.row_slice_threshold,
            "dp_input": dp_input,
            "input_table_map": None if input_table_map is None else [int(table) for table in input_table_map],
            "data_parallel_threshold": self.strategy.options.data_parallel_threshold,
        }
        if not isinstance(dp_input, bool):
            raise TypeError(f"{self._who()}: dp_input must be a bool, not {dp_input!r}")
        self.dp_input = dp_input
        self._replicas: list[tf.Variable] = []
        self._variables: list[tf.Variable] = []

    def build(self, input_shape: Any = None) -> None:
        """Makes this rank's variables. Their sizes do not depend on the inputs."""
        del input_shape
        layout, ranks = self.strategy.layout, communicator()
        with tf.name_scope(f"{self.name}/"):
            self._replicas = [self._variable(group, replica_name(group)) for group in layout.replicas]
            self._variables = [
                self._variable(group, cut_name(number, ranks.rank, ranks.size))
                for number, group in enumerate(layout.groups[ranks.rank])
            ]
            with tf.init_scope():
                self._weights_of_tables = Weights(self.strategy, self._replicas, self._variables, self._who())
        self.built = True

    def call(self, inputs: Any) -> list[Any]:
        """Returns an output for each input.

        Raises:
          TypeError, ValueError: the inputs do not fit; the message names the input and its table.
          tf.errors.InvalidArgumentError: when it runs, on all ranks, if an id on any rank is not in its
          table.
        """
        return self._outputs(inputs)

    # Nothing here branches on a tensor, and AutoGraph would rewrite all that is called, once in each process.
    # Keras reads the arguments of `call`, which the decorator would hide.
    @tf.autograph.experimental.do_not_convert
    def _outputs(self, inputs: Any) -> list[Any]:
        name = exchange_names.unique_name(self._who())
        by_samples = self.dp_input or communicator().size == 1
        look_up = lookups.look_up if by_samples else worker_lookups.look_up
        outputs = look_up(LayerCall(self.strategy, self._replicas, self._variables, self._flat(inputs), name))
        return [self._computed(output) for output in outputs]

    def get_weights(
        self,
        all_ranks: bool = False,
        session: Any = None,
        paths: Sequence[Any] | None = None,
        chunk: int = _CHUNK,
    ) -> list[np.ndarray]:
        """Returns the tables whole, float32 arrays [rows, columns], in the order of the embedding layers.

        All ranks call it with the same arguments, except for paths. The rows travel in chunks.

        Args:
          all_ranks: whether every rank gets the tables. Otherwise rank 0 does; the others get an empty list.
          session: in a graph, the session to use; else the default one is, else Keras'.
          paths: for each embedding layer the path of a `.npy` file, which each rank that gets the tables
            writes. The arrays are then mapped from the files, to be read only, and no rank has more than a
            few chunks of a table in memory. Files are written under other names beside the paths, and renamed
            when all are whole. With `all_ranks`, ranks may have other paths.
          chunk: the most elements of a table that travel, or that a rank sends, at once; a row is always
            sent whole.

        Raises:
          TypeError, ValueError, OSError: paths or `chunk` are bad, or a file cannot be written; the message
            names the table. The other ranks raise a ValueError that names the rank and has the message.
        """
        return self._access().get(bool(all_ranks), session, paths, chunk)

    def set_weights(
        self, weights: Sequence[Any], chunk: int = _CHUNK, use_lock: bool = False, session: Any = None
    ) -> None:
        """Sets the tables. All ranks must call it with the same weights; each rank reads only its own rows.

        Args:
          weights: for each embedding layer an array [rows, columns], which may be mapped from a file, or the
            path of a `.npy` file of one. Such files are mapped into memory and not read whole.
          chunk: the most elements to set at once; a row is always set whole.
          use_lock: whether ranks set their rows one after another, which takes less memory if they share a
            machine.
          session: as for `get_weights`.

        Raises:
          ValueError: the layer has not been built.
          TypeError, ValueError, OSError: weights do not fit, or cannot be read; the message names the table.
            Nothing is set. The other ranks raise a ValueError that names the rank and has the message.
        """
        if not self.built:
            raise ValueError(f"{self._who()} has no weights to set: {_BUILD_FIRST}")
        self._access().set(weights, chunk, use_lock, session)

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments, for `from_config`; embedding layers are dicts of their arguments."""
        return {**super().get_config(), **self._arguments, "embeddings": self.strategy.configs()}

    def _access(self) -> Weights:
        if not self.built:
            if not tf.executing_eagerly() and tf.compat.v1.get_default_graph().finalized:
                raise ValueError(
                    f"{self._who()} has no weights: it was not called before the graph was finalized"
                )
            self.build()
        return self._weights_of_tables

    def _flat(self, inputs: Any) -> list[FlatIds]:
        numbers = list(range(len(self.strategy.input_table_map)))
        if not self.dp_input:
            numbers = self.strategy.input_ids_list[communicator().rank]
        if not isinstance(inputs, (list, tuple)):
            inputs = [inputs]
        if len(inputs) != len(numbers):
            which = "" if self.dp_input else f", {numbers},"
            raise ValueError(f"{self._who()} takes {len(numbers)} inputs{which}, not {len(inputs)}")
        flat = []
        for number, ids in zip(numbers, inputs):
            table = self.strategy.input_table_map[number]
            who = f"{self._who()}: input {number} of {self.strategy.describe(table)}"
            flat.append(flat_ids(ids, self.strategy.tables[table], who))
            if not self.dp_input:
                self._check_batch(flat[-1], who)
        return flat

    def _check_batch(self, ids: FlatIds, who: str) -> None:
        if not ids.has_batches:
            raise ValueError(f"{who} must be [batch] or [batch, ids] with dp_input=False, not {ids.ids!r}")
        batch, ranks = ids.ids.shape[:1].as_list()[0], communicator().size
        # In eager execution, ranks may have different batches, and all are told before any of them raises.
        if batch is not None and batch % ranks and not tf.executing_eagerly():
            raise ValueError(f"{who}: the global batch of {batch} is not divisible by {ranks} ranks")

    def _variable(self, group: Group, name: str) -> tf.Variable:
        value = initial_value(group.pieces, self.strategy.tables, group.columns)
        shape = tf.TensorShape([group.rows, group.columns])
        variable = tf.Variable(
            value,
            trainable=self.trainable,
            name=name,
            dtype=tf.float32,
            shape=shape,
            **compat.AS_RESOURCE,
        )
        dense_updates.make_dense_table(variable)
        return variable

    def _who(self) -> str:
        return f"DistributedEmbedding '{self.name}'"
