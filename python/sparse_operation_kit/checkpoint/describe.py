"""Describes the contents of a checkpoint as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sparse_operation_kit.checkpoint import histogram
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.rows import (
    columns_of,
    find_row,
    find_waiting,
    foreign_slots,
    waiting_ids,
)


def describe(table: Table) -> Iterator[str]:
    """Yields lines about a table: the contents of its entries, and its ids that wait for admission."""
    link = table.last
    if link.system:
        yield from _describe_foreign(table)
        return
    description = link.table
    shards = len(table.last.shards)
    yield f"{table.name}"
    yield f"  files       {link.prefix}.*"
    at = f"{_clock(description)} {link.steps:,}, training lookup {link.uses:,}"
    yield f"  checkpoint  {_kind(table)}, of {at}"
    kept = "" if link.row_dtype == "float32" else f" as {link.row_dtype}"
    rows = f"{link.rows:,} of {table.dim} floats{kept} in {count_of(shards, 'shard')}"
    yield f"  rows        {rows}, {size(table.last.bytes)}"
    if shards > 1:
        yield f"  of a shard  {', '.join(f'{shard.table_rows:,}' for shard in table.last.shards)}"
    if link.is_delta:
        written = sum(shard.rows for shard in table.last.shards)
        gone = sum(len(shard.arrays["deleted"]) for shard in table.last.shards)
        yield f"  in it       {count_of(written, 'row')}, and {count_of(gone, 'deleted key')}"
    bound = f", at most {description['capacity']:,} on a rank" if description["capacity"] else ""
    if description["capacity"] and description["hashed"]:
        bound += f" (on_full: {description['on_full']})"
    hashed = "hashed" if description["hashed"] else "are the rows"
    yield f"  keys        {description['key_dtype']}, {hashed}{bound}"
    if "placement" in description:
        yield f"  placement   {description['placement'][:200]}"
    yield f"  new rows    {_parameters(description['initializer'])}"
    yield from _optimizer(table)
    columns = [name for name in columns_of(table) if name != "values" and not name.startswith("slot-")]
    if columns:
        yield f"  of each row {', '.join(columns)}"
    yield f"  admission   {_parameters(description['admission'])}"
    yield f"  eviction    {_parameters(description['eviction'])}"
    yield from _waiting(table)
    yield from _chain(table)


def _describe_foreign(table: Table) -> Iterator[str]:
    """Yields the lines of a table that another system wrote."""
    link, parts = table.last, table.last.shards
    yield f"{table.name}"
    yield f"  files       {link.prefix}.*"
    yield f"  written by  {link.system}"
    if "clock" in link.table:
        yield f"  checkpoint  of global step {link.steps:,}"
    rows = f"{link.rows:,} of {table.dim} floats in {count_of(len(parts), 'part')}"
    yield f"  rows        {rows}, {size(link.bytes)}"
    if len(parts) > 1:
        yield f"  of a part   {', '.join(f'{part.rows:,}' for part in parts)}"
    slots = foreign_slots(table)
    widths = [parts[0].arrays[f"saved-slot-{slot}"].shape[1] for slot in slots]
    yield f"  slots       {', '.join(f'{slot} [{width}]' for slot, width in zip(slots, widths)) or 'none'}"
    columns = [name for name in columns_of(table) if name != "values"]
    yield f"  of each row {', '.join(columns) or 'no counts'}"
    if "waiting_keys" in parts[0].arrays:
        yield f"  waiting     {count_of(len(waiting_ids(table)[0]), 'id')}"


def describe_statistics(table: Table, found: histogram.Statistics) -> Iterator[str]:
    """Yields lines with the histograms of a table."""
    if table.is_lagging:
        yield "  The weights are those in the files: rows still lack steps of exact Adam."
    if found.not_finite:
        yield f"  {count_of(found.not_finite, 'row')} with a weight that is NaN or infinite"
    shards = [f"shard {number}" for number in range(len(found.of_shard))]
    yield from histogram.text("rows by shard", shards, found.of_shard)
    leading = histogram.leading_bits_labels()
    yield from histogram.text("rows by the first bits of the key", leading, found.of_leading_bits)
    yield from histogram.text("rows by Euclidean norm", histogram.norm_labels(), found.of_norm)
    if found.of_count is None or not found.of_count[1].any():
        return
    slots = table.last.optimizer.slots if table.last.optimizer else ()
    row_bytes = 4 * (table.dim + sum(slot.width for slot in slots))
    yield "  memory for the rows that are looked up most often"
    for percent in (90, 99, 99.9):
        rows = found.rows_for(percent / 100)
        yield f"    {percent:>4} % of lookups  {rows:>12,} rows  {rows * row_bytes:>16,} bytes"


def describe_id(table: Table, key: int) -> Iterator[str]:
    """Yields lines about one id: its row, slots and counts.

    Raises:
      CheckpointError: The table has neither a row nor a count of the id, or rows still lack steps of exact
        Adam.
    """
    table.require_current()
    row = find_row(table, key)
    shard = "" if table.last.system else f", shard {table.last.shard_of(key)}"
    if row is not None:
        yield f"{table.name}: id {key}{shard}"
        for name, value in row.items():
            yield f"  {name:<12}{_numbers(value)}"
        return
    waiting = find_waiting(table, key)
    if waiting is None:
        raise CheckpointError(table.last.path, f"table '{table.name}' has no row of the id {key}")
    yield f"{table.name}: id {key}{shard}, waits for admission"
    of = f" of {table.last.table['admission']['filter_freq']}" if not table.last.system else ""
    yield f"  count       {waiting[0]}{of}"
    yield f"  last_step   {waiting[1]}"


def size(number: int) -> str:
    """Returns a number of bytes in a readable unit."""
    scaled = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if scaled < 1024 or unit == "GiB":
            return f"{number} bytes" if unit == "bytes" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    raise AssertionError(number)


def count_of(number: int, what: str) -> str:
    """Returns a number with a noun in singular or plural: "1 id", "2,000 ids"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _clock(description: dict[str, Any]) -> str:
    return "global step" if "clock" in description else "step"


def _kind(table: Table) -> str:
    return f"delta after {count_of(len(table.links) - 1, 'checkpoint')}" if table.last.is_delta else "full"


def _parameters(description: dict[str, Any] | None) -> str:
    if description is None:
        return "none"
    others = [f"{name} {value}" for name, value in description.items() if name != "kind"]
    return ", ".join([description["kind"], *others])


def _optimizer(table: Table) -> Iterator[str]:
    optimizer = table.last.optimizer
    if optimizer is None:
        yield "  optimizer   none yet"
        return
    hyper = ", ".join(f"{name} {value}" for name, value in optimizer.hyper.items())
    yield f"  optimizer   {optimizer.name}, {count_of(optimizer.steps, 'step')}; first with {hyper}"
    slots = ", ".join(map(str, optimizer.slots))
    yield f"  slots       {slots or 'none'}"


def _waiting(table: Table) -> Iterator[str]:
    if (table.last.table["admission"] or {}).get("kind") != "counter":
        return
    counts = waiting_ids(table)[1]
    most = f", the most frequent seen {count_of(int(counts.max()), 'time')}" if counts.size else ""
    yield f"  waiting     {count_of(len(counts), 'id')}{most}"


def _chain(table: Table) -> Iterator[str]:
    for number, link in enumerate(table.links[:-1]):
        start = "  builds on   " if number == 0 else "              "
        kind = "delta" if link.is_delta else "full"
        yield f"{start}{link.prefix} ({kind}, step {link.steps:,}, {size(link.bytes)})"


def _numbers(value: np.ndarray) -> str:
    with np.printoptions(threshold=2000, linewidth=10**6):
        return str(value)
