"""The results of lookups_over_ranks.py as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bench.ranks_timing import Contender


@dataclasses.dataclass(frozen=True)
class Row:
    """One launch of ranks, measured on rank 0."""

    transport: str
    cycle_time: float  # Horovod's, ms
    ranks: int
    features: int
    dim: int
    ids: float  # per step of rank 0
    unique: float  # distinct rows, per step of rank 0
    exchanges: float  # counted, per step
    bytes_sent: float  # counted, per step of rank 0
    bytes_by_formula: float
    alltoalls: int  # of the peers, per step
    timings: dict[str, Contender]

    @classmethod
    def of(cls, fields: dict) -> Row:
        """The row of a dict that `dataclasses.asdict` made."""
        timings = {name: Contender(**timing) for name, timing in fields["timings"].items()}
        return cls(**{**fields, "timings": timings})


def table(rows: Sequence[Row]) -> str:
    """The rows as text. Times are medians in milliseconds, followed by the minimum."""
    head = ["transport", "cycle", "ranks", "dim", "ids", "unique", "exchanges", "sent", "formula"]
    for what in ("forward", "step"):
        head += [what, "plain", "/sok", "unique", "/sok"]
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines)


def _cells(row: Row) -> list[str]:
    cells = [row.transport, f"{row.cycle_time:g}", str(row.ranks), str(row.dim), f"{row.ids:.0f}"]
    cells += [
        f"{row.unique:.0f}",
        f"{row.exchanges:g}",
        f"{row.bytes_sent:.0f}",
        f"{row.bytes_by_formula:.0f}",
    ]
    for what in ("forward", "step"):
        ours = row.timings[f"sok {what}"]
        cells.append(_milliseconds(ours))
        for kind in ("plain", "unique"):
            theirs = row.timings[f"{kind} {what}"]
            cells += [_milliseconds(theirs), f"{theirs.median / ours.median:.1f}"]
    return cells


def _milliseconds(timing: Contender) -> str:
    return f"{timing.median:.2f} ({timing.minimum:.2f})"
