"""Makes checkpoints of other systems ones of this library, without a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sparse_operation_kit.checkpoint import other_systems
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import COLUMNS, WAITING, Table
from sparse_operation_kit.checkpoint.reader import Bundle
from sparse_operation_kit.checkpoint.rows import columns_of, count_rows, row_blocks, waiting_ids

_MAX_COUNT = 1 << 62


def write_checkpoint(tables: Sequence[Table], folder: Path) -> list[str]:
    """Writes a checkpoint of tables that other systems wrote, and of its ordinary variables.

    The tables are in one shard, which any number of ranks restores. What the other system does not tell of
    them is what tables have by default; a table that restores them has its own filter, limits, eviction and
    initial rows.

    Returns:
      Lines that say what of the tables nothing is made of.

    Raises:
      CheckpointError: A table is one of this library; a table or a variable is damaged, or nothing can be
        written.
    """
    for table in tables:
        if not table.last.system:
            raise CheckpointError(
                table.last.path, "is a table of this library: compact makes one full checkpoint of it"
            )
    folder.mkdir()
    bundle = other_systems.new_bundle(tables, folder)
    for table in tables:
        _write_table(table, bundle)
        if table.last.slots_of == "AdamAsync":
            powers = other_systems.powers_of_async(table.last.prefix, table.name)
            for name, (_, power) in powers.items():
                bundle.add(name, power)
    other_systems.finish(bundle, tables, folder)
    return other_systems.left_out("this library", tables, [*COLUMNS, *WAITING])


def _write_table(table: Table, bundle: Bundle) -> None:
    rows, columns = count_rows(table), columns_of(table)
    first = table.last.shards[0].arrays
    arrays = {
        name: bundle.new_array(
            f"{table.name}#0/{name}", first[name].dtype.type, (rows, *first[name].shape[1:])
        )
        for name in ["keys", *columns]
    }
    for block in row_blocks(table, columns):
        bundle.write(arrays["keys"], block.keys)
        for name, values in block.columns.items():
            bundle.write(arrays[name], _counts(table, name, values))
    filter_freq = 0
    if any(WAITING[0] in shard.arrays for link in table.links for shard in link.shards):
        waiting = [_counts(table, name, one) for name, one in zip(WAITING, waiting_ids(table))]
        for name, numbers in zip(WAITING, waiting):
            bundle.write(bundle.new_array(f"{table.name}#0/{name}", np.int64, numbers.shape), numbers)
        filter_freq = int(waiting[1].max(initial=0)) + 1
    bundle.add_table(table.saved, rows, filter_freq)


def _counts(table: Table, name: str, values: np.ndarray) -> np.ndarray:
    """Returns the numbers that a restore makes of those of another system, where -1 stands for none."""
    limits = {
        "frequency": _MAX_COUNT,
        "waiting_counts": _MAX_COUNT,
        "last_step": table.last.steps,
        "waiting_last_step": table.last.steps,
    }
    if name not in limits:
        return values
    if values.min(initial=0) < -1:
        raise CheckpointError(table.last.path, f"has the negative number {values.min()} as {name}")
    return np.clip(values, 0, limits[name])
