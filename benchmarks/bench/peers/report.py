"""Results of peers.py: a row for each kind of call, bags and tables, with an entry for each library."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from bench import markdown
from bench.axes import Bags, Tables
from bench.peers.catalog import LIBRARIES
from bench.timing import Timing


@dataclasses.dataclass(frozen=True)
class Entry:
    """A library's time for the call, and ours in the same rounds."""

    name: str
    timing: Timing
    ours: Timing

    @property
    def ratio(self) -> float:
        """The library's time divided by ours: above 1, we are faster."""
        return self.timing.median / self.ours.median

    @property
    def cpu_ratio(self) -> float:
        """The same for processor time over all threads."""
        return self.timing.median_cpu / self.ours.median_cpu


@dataclasses.dataclass(frozen=True)
class Row:
    """One kind of call on one kind of bags and tables."""

    threads: int
    tables: Tables
    bags: Bags
    what: str  # "forward" or "step"
    ids: float  # per call
    unique: float  # distinct rows per call
    megabytes: float  # the least that a call can move
    copy_gb_per_s: float  # of a memory copy in the same rounds, bytes read and written
    gather: Timing | None  # of a plain loop that gathers the ids' rows with prefetching; forward only
    entries: tuple[Entry, ...]  # ours first

    @property
    def copy_ms(self) -> float:
        """How long a memory copy of as many bytes takes."""
        return self.megabytes / self.copy_gb_per_s

    def joined(self, other: Row) -> Row:
        """Adds the peers of another group. Each entry keeps our time from its own rounds."""
        return dataclasses.replace(self, entries=self.entries + other.entries[1:])


def write_json(path: pathlib.Path, machine: dict[str, object], rows: Sequence[Row]) -> None:
    """Writes the rows, the libraries and a description of the machine."""
    libraries = {name: dataclasses.asdict(LIBRARIES[name]) for name in _libraries(rows)}
    content = {
        "machine": machine,
        "libraries": libraries,
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _libraries(rows: Sequence[Row]) -> list[str]:
    names = dict.fromkeys(entry.name for row in rows for entry in row.entries)
    return [name for name in names if name in LIBRARIES]


def read_json(path: pathlib.Path) -> tuple[dict[str, object], list[Row]]:
    """Reads a file of `write_json`: the machine and the rows."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["machine"], [_row_from(fields) for fields in content["rows"]]


def _row_from(fields: dict[str, object]) -> Row:
    entries = tuple(
        Entry(entry["name"], Timing(**entry["timing"]), Timing(**entry["ours"]))
        for entry in fields["entries"]
    )
    read = {
        "tables": Tables(**fields["tables"]),
        "bags": Bags(**fields["bags"]),
        "gather": None if fields["gather"] is None else Timing(**fields["gather"]),
        "entries": entries,
    }
    return Row(**{**fields, **read})


_HEAD = (
    "what",
    "optimizer",
    "dim",
    "ids per bag",
    "who",
    "ms (min)",
    "cpu ms",
    "/sok",
    "cpu /sok",
    "/copy",
    "/gather",
)


def tables(rows: Sequence[Row]) -> str:
    """The rows as tables in Markdown, one for each number of threads and kind of batch."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(_title(row), []).append(row)
    return "\n\n".join(f"{title}\n\n{_table(part)}" for title, part in parts.items())


def semantics(rows: Sequence[Row]) -> str:
    """What the measured libraries do, as a list in Markdown."""
    libraries = [LIBRARIES[name] for name in _libraries(rows)]
    return "\n".join(f"- **{library.name}**: {library.tables}; {library.training}." for library in libraries)


def _title(row: Row) -> str:
    skew = f"Zipf {row.bags.exponent:g}" if row.bags.exponent else "uniform"
    threads = "1 thread" if row.threads == 1 else f"{row.threads} threads"
    batch = f"{row.tables.features} features, batch {row.bags.batch}"
    return f"**{threads}, {batch}, {skew}, {row.tables.bytes / 1e6:.0f} MB of rows**"


def _table(rows: Sequence[Row]) -> str:
    return markdown.table(_HEAD, [cells for row in rows for cells in _lines(row)])


def _lines(row: Row) -> list[tuple[str, ...]]:
    question = (row.what, row.tables.optimizer, str(row.tables.dim), str(row.bags.hotness))
    bound = f"{row.megabytes:.1f} MB copied"
    lines = [(*question, bound, f"{row.copy_ms:.2f}", "", "", "", "", "")]
    if row.gather is not None:
        lines.append(
            (*question, "bare gather", *_times(row.gather), "", "", _over(row.gather.median, row.copy_ms), "")
        )
    for entry in row.entries:
        gather = "" if row.gather is None else _over(entry.timing.median, row.gather.median)
        ratios = (f"{entry.ratio:.2f}", f"{entry.cpu_ratio:.2f}")
        lines.append(
            (
                *question,
                entry.name,
                *_times(entry.timing),
                *ratios,
                _over(entry.timing.median, row.copy_ms),
                gather,
            )
        )
    return lines


def _times(timing: Timing) -> tuple[str, str]:
    return f"{timing.median:.2f} ({timing.minimum:.2f})", f"{timing.median_cpu:.2f}"


def _over(milliseconds: float, bound: float) -> str:
    return f"{milliseconds / bound:.1f}"
