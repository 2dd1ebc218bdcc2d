"""What a program measured: one row for each question, printed as a table and written as JSON."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from bench.timing import Timing


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another way to do the same: its name and its milliseconds of a call."""

    name: str
    median_ms: float
    min_ms: float

    @classmethod
    def of(cls, name: str, timing: Timing) -> Peer:
        """The peer with a measured timing."""
        return cls(name, timing.median, timing.minimum)


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured call of ours beside its peers, within one run."""

    threads: int
    features: int
    dim: int
    rows: int  # of all tables
    hotness: int
    optimizer: str
    what: str  # "forward", "lookup" or "step"
    ids: float  # per call
    unique: float  # distinct rows per call
    megabytes: float  # that a call has to move
    copy_gb_per_s: float  # the machine's memory copy, bytes read and written
    feed_ms: float  # of a session.run that takes the next batch and does nothing with it
    median_ms: float
    min_ms: float
    peers: tuple[Peer, ...]
    engine: Peer | None  # the same without TensorFlow

    @property
    def bound_ms(self) -> float:
        """How long a memory copy of as many bytes takes."""
        return self.megabytes / self.copy_gb_per_s


def write_json(path: pathlib.Path, machine: dict[str, object], rows: Sequence[Row]) -> None:
    """Writes the rows and what is known of the machine."""
    content = {"machine": machine, "rows": [dataclasses.asdict(row) for row in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_rows(path: pathlib.Path) -> list[Row]:
    """The rows of a file that `write_json` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [_row_from(fields) for fields in rows]


def _row_from(fields: dict[str, object]) -> Row:
    peers = tuple(Peer(**peer) for peer in fields["peers"])
    engine = None if fields["engine"] is None else Peer(**fields["engine"])
    return Row(**{**fields, "peers": peers, "engine": engine})


def table(rows: Sequence[Row]) -> str:
    """The rows as text. Times are medians of milliseconds with the minimum behind."""
    peer_names = list(dict.fromkeys(peer.name for row in rows for peer in row.peers))
    head = ["thr", "feat", "dim", "hot", "optimizer", "what", "ids", "unique", "MB", "bound", "feed", "sok"]
    for name in peer_names:
        head += [name, "/sok"]
    head += ["engine", "sok/"]
    lines = [head, *(_cells(row, peer_names) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )


def _cells(row: Row, peer_names: Sequence[str]) -> list[str]:
    cells = [str(value) for value in (row.threads, row.features, row.dim, row.hotness)]
    cells += [row.optimizer, row.what, f"{row.ids:.0f}", f"{row.unique:.0f}", f"{row.megabytes:.1f}"]
    cells += [f"{row.bound_ms:.2f}", f"{row.feed_ms:.2f}", _milliseconds(row.median_ms, row.min_ms)]
    peers = {peer.name: peer for peer in row.peers}
    for name in peer_names:
        peer = peers.get(name)
        cells += _peer_cells(peer, peer and peer.median_ms / row.median_ms)
    return cells + _peer_cells(row.engine, row.engine and row.median_ms / row.engine.median_ms)


def _peer_cells(peer: Peer | None, ratio: float | None) -> list[str]:
    if peer is None:
        return ["-", "-"]
    return [_milliseconds(peer.median_ms, peer.min_ms), f"{ratio:.2f}"]


def _milliseconds(median: float, minimum: float) -> str:
    return f"{median:.2f} ({minimum:.2f})"
