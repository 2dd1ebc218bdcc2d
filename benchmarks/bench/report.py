"""Results of lookup_and_step.py, printed as a table and written as JSON."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from bench.timing import Timing


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another implementation of the same call, and its time."""

    name: str
    timing: Timing


@dataclasses.dataclass(frozen=True)
class Row:
    """One call of ours and of its peers, measured in the same rounds."""

    threads: int
    features: int
    batch: int
    dim: int
    rows: int  # of all tables
    hotness: int
    exponent: float
    optimizer: str
    what: str  # "forward", "lookup" or "step"
    ids: float  # per call
    unique: float  # distinct rows per call
    megabytes: float  # the least that a call can move
    copy_gb_per_s: float  # of a memory copy, bytes read and written
    run_alone: Timing  # of a session.run that takes the next batch and does nothing with it
    timing: Timing
    peers: tuple[Peer, ...]
    engine: Peer | None  # the same call without TensorFlow

    @property
    def bound_ms(self) -> float:
        """How long a memory copy of as many bytes takes."""
        return self.megabytes / self.copy_gb_per_s


def write_json(path: pathlib.Path, machine: dict[str, object], rows: Sequence[Row]) -> None:
    """Writes the rows and a description of the machine."""
    content = {"machine": machine, "rows": [dataclasses.asdict(row) for row in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_rows(path: pathlib.Path) -> list[Row]:
    """Reads the rows that `write_json` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [_row_from(fields) for fields in rows]


def _row_from(fields: dict[str, object]) -> Row:
    peers = tuple(_peer_from(peer) for peer in fields["peers"])
    engine = None if fields["engine"] is None else _peer_from(fields["engine"])
    timings = {name: Timing(**fields[name]) for name in ("run_alone", "timing")}
    return Row(**{**fields, **timings, "peers": peers, "engine": engine})


def _peer_from(fields: dict[str, object]) -> Peer:
    return Peer(fields["name"], Timing(**fields["timing"]))


def table(rows: Sequence[Row]) -> str:
    """The rows as text. Times are medians in milliseconds, followed by the minimum; see README.md."""
    peer_names = list(dict.fromkeys(peer.name for row in rows for peer in row.peers))
    head = ["thr", "feat", "batch", "dim", "hot", "zipf", "rows", "optimizer", "what", "ids", "unique"]
    head += ["MB", "bound", "sok"]
    for name in peer_names:
        head += [name, "/sok", "cpu"]
    head += ["engine", "sok/", "cpu", "run", "run+engine/", "cpu"]
    lines = [head, *(_cells(row, peer_names) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines)


def _cells(row: Row, peer_names: Sequence[str]) -> list[str]:
    cells = [str(value) for value in (row.threads, row.features, row.batch, row.dim, row.hotness)]
    cells += [f"{row.exponent:g}", f"{row.rows / 1e6:.3g}M"]
    cells += [row.optimizer, row.what, f"{row.ids:.0f}", f"{row.unique:.0f}", f"{row.megabytes:.1f}"]
    cells += [f"{row.bound_ms:.2f}", _milliseconds(row.timing)]
    peers = {peer.name: peer.timing for peer in row.peers}
    for name in peer_names:
        cells += _ratio_cells(peers[name], peers[name], row.timing) if name in peers else ["-"] * 3
    if row.engine is None:
        return cells + ["-"] * 3 + [_milliseconds(row.run_alone)] + ["-"] * 2
    engine = row.engine.timing
    both = Timing(*map(sum, zip(dataclasses.astuple(engine), dataclasses.astuple(row.run_alone))))
    cells += _ratio_cells(engine, row.timing, engine)
    return cells + _ratio_cells(row.run_alone, both, engine)


def _ratio_cells(timing: Timing, over: Timing, under: Timing) -> list[str]:
    by_cpu = f"{over.median_cpu / under.median_cpu:.2f}" if under.median_cpu > 0 else "-"
    return [_milliseconds(timing), f"{over.median / under.median:.2f}", by_cpu]


def _milliseconds(timing: Timing) -> str:
    return f"{timing.median:.2f} ({timing.minimum:.2f})"
