"""DistEmbeddingStrategy: the tables of embedding layers, and where they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from sparse_operation_kit.dist_model_parallel.keras import keras
from sparse_operation_kit.dist_model_parallel.layout import Layout, lay_out
from sparse_operation_kit.dist_model_parallel.placement import Options, Placement, Table, describe, place

COMBINERS = (None, "sum", "mean")


@dataclasses.dataclass(frozen=True)
class TableOfLayer:
    """What a `DistributedEmbedding` takes from an embedding layer.

    Attributes:
      table: the sizes, the combiner and the layer's name.
      initializer: the layer's `embeddings_initializer`.
      feature_sizes: for a `ConcatOneHotEmbedding`, the number of rows of each of its features; else None.
    """

    table: Table
    initializer: Any
    feature_sizes: tuple[int, ...] | None = None


class DistEmbeddingStrategy:
    """Where the tables of embedding layers are: the same on every rank, computed without communication.

    Attributes:
      tables: a `TableOfLayer` for each layer.
      world_size: the number of ranks.
      strategy: the name of the strategy.
      options: the strategy and the thresholds.
      input_table_map: the table of each input.
      placement: the pieces of the tables, a `Placement`.
      layout: the variables and lookups that follow from it.
      table_ids, table_ids_list: by rank, the tables of which it has a piece.
      input_ids_list: by rank, the inputs that look up one of these tables. With `dp_input=False` a rank takes
        these inputs, in this order.
      local_configs: by rank, the pieces as dicts, in the order of `table_ids_list`: `name`, `input_dim`,
        `output_dim` and `combiner` of the piece.
    """

    def __init__(
        self,
        embeddings: Sequence[Any],
        world_size: int,
        strategy: str = "basic",
        input_table_map: Sequence[int] | None = None,
        column_slice_threshold: int | None = None,
        row_slice_threshold: int | None = None,
        data_parallel_threshold: int | None = None,
        *,
        gpu_embedding_size: int | None = None,
    ) -> None:
        """Places the tables.

        Args:
          embeddings: embedding layers that have no weights yet: Keras', this package's, or other layers or
            objects with `input_dim`, `output_dim` and, if they have them, `combiner` and
            `embeddings_initializer`. Dicts with these keys are accepted too.
          world_size: the number of ranks.
          strategy: "basic", "memory_balanced" or "memory_optimized".
          input_table_map: the table of each input. None: input i is looked up in table i.
          column_slice_threshold: the most elements of a slice of columns. None: tables are cut only if fewer
            tables than ranks are neither replicated nor sliced by rows.
          row_slice_threshold: tables with at least this many elements are sliced by rows. None: none is.
          data_parallel_threshold: tables with at most this many elements are replicated. None: none is.
          gpu_embedding_size: has no effect.

        Raises:
          TypeError: an embedding is not an embedding layer.
          ValueError: an argument is out of range; the message names it, and the table if it is one's.
        """
        del gpu_embedding_size
        if not isinstance(embeddings, (list, tuple)):
            raise TypeError(f"embeddings must be a list of embedding layers, not {embeddings!r}")
        _check_distinct(embeddings)
        self.tables = tuple(table_of(layer, number) for number, layer in enumerate(embeddings))
        self.world_size = world_size = _as_int(world_size)
        self.strategy = strategy
        thresholds = (column_slice_threshold, row_slice_threshold, data_parallel_threshold)
        self.options = Options(strategy, *map(_as_int, thresholds))
        tables = [of_layer.table for of_layer in self.tables]
        self.placement: Placement = place(tables, world_size, self.options)
        self.layout: Layout = lay_out(self.placement)
        self.input_table_map = _checked_map(input_table_map, len(self.tables))
        on_ranks = [self.placement.on_rank(rank) for rank in range(world_size)]
        self.table_ids = self.table_ids_list = [
            sorted({piece.table for piece in pieces}) for pieces in on_ranks
        ]
        self.input_ids_list = [
            [number for number, table in enumerate(self.input_table_map) if table in tables]
            for tables in self.table_ids_list
        ]
        self.local_configs = [
            [
                {
                    "name": self.tables[piece.table].table.name,
                    "input_dim": piece.rows[1] - piece.rows[0],
                    "output_dim": piece.columns[1] - piece.columns[0],
                    "combiner": self.tables[piece.table].table.combiner,
                }
                for piece in sorted(pieces, key=lambda piece: piece.table)
            ]
            for pieces in on_ranks
        ]

    def configs(self) -> list[dict[str, Any]]:
        """For each layer its arguments, which `DistEmbeddingStrategy` takes in place of the layer."""
        return [
            {
                "name": of_layer.table.name,
                "input_dim": of_layer.table.rows,
                "output_dim": of_layer.table.columns,
                "combiner": of_layer.table.combiner,
                "embeddings_initializer": _serialized(of_layer.initializer),
                "feature_sizes": None if of_layer.feature_sizes is None else list(of_layer.feature_sizes),
            }
            for of_layer in self.tables
        ]

    def describe(self, table: int) -> str:
        """How messages name a table."""
        return describe(table, self.tables[table].table)


def table_of(layer: Any, number: int) -> TableOfLayer:
    """Returns what a layer, or a dict in its place, says of its table; see `DistEmbeddingStrategy`."""
    own = layer if isinstance(layer, dict) else _attributes(layer)
    who = f"Table {number} ('{own.get('name') or type(layer).__name__}')"
    if own.get("input_dim") is None or own.get("output_dim") is None:
        raise TypeError(f"{who} is no embedding layer: it needs input_dim and output_dim, but is {layer!r}")
    if own.get("combiner") not in COMBINERS:
        raise ValueError(f"{who}: combiner must be None, 'sum' or 'mean', not {own['combiner']!r}")
    for name in ("embeddings_regularizer", "embeddings_constraint", "activity_regularizer", "mask_zero"):
        if own.get(name):
            raise ValueError(f"{who}: {name} has no effect on a distributed table and must not be given")
    if own.get("trainable") is False:
        raise ValueError(f"{who} is not trainable; set `trainable` of the DistributedEmbedding instead")
    if own.get("weights") and own.get("feature_sizes") is None:
        raise ValueError(
            f"{who} has weights already; pass a new layer, and the weights to `set_weights` of the "
            "DistributedEmbedding"
        )
    if str(own.get("dtype") or "float32") != "float32":
        raise ValueError(f"{who}: tables are float32, not {own['dtype']}")
    sizes = own.get("feature_sizes")
    table = Table(
        _as_int(own["input_dim"]),
        _as_int(own["output_dim"]),
        own.get("combiner"),
        name=str(own.get("name") or ""),
    )
    return TableOfLayer(table, own.get("embeddings_initializer"), None if sizes is None else tuple(sizes))


_READ = (
    "name",
    "input_dim",
    "output_dim",
    "combiner",
    "feature_sizes",
    "mask_zero",
    "trainable",
    "weights",
    "embeddings_initializer",
    "embeddings_regularizer",
    "embeddings_constraint",
    "activity_regularizer",
)


def _attributes(layer: Any) -> dict[str, Any]:
    """The layer's attributes; those that it lacks are read from its config."""
    config = layer.get_config() if hasattr(layer, "get_config") else {}
    own = {name: getattr(layer, name, config.get(name)) for name in _READ}
    own["dtype"] = getattr(layer, "variable_dtype", None) or config.get("dtype")
    return own


def _serialized(initializer: Any) -> Any:
    is_plain = initializer is None or isinstance(initializer, (str, dict, int, float))
    return initializer if is_plain else keras.initializers.serialize(initializer)


def _as_int(value: Any) -> Any:
    """Converts NumPy's integers to Python's. Returns other values unchanged, which the placement refuses."""
    is_index = hasattr(value, "__index__") and not isinstance(value, bool)
    return value.__index__() if is_index else value


def _check_distinct(embeddings: Sequence[Any]) -> None:
    seen: dict[int, int] = {}
    for number, layer in enumerate(embeddings):
        first = seen.setdefault(id(layer), number)
        if first != number:
            raise ValueError(
                f"Tables {first} and {number} are one layer: list it once, and map inputs to it with "
                "input_table_map"
            )


def _checked_map(input_table_map: Any, tables: int) -> list[int]:
    if input_table_map is None:
        return list(range(tables))
    if not isinstance(input_table_map, (list, tuple)) or not input_table_map:
        raise ValueError(f"input_table_map must be a list of table numbers, not {input_table_map!r}")
    for position, table in enumerate(input_table_map):
        if isinstance(table, bool) or not hasattr(table, "__index__") or not 0 <= table < tables:
            raise ValueError(f"input_table_map[{position}] must be a table in [0, {tables}), not {table!r}")
    return [int(table) for table in input_table_map]
