"""Results of engine_parts.py, one row for each comparison."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from bench import markdown
from bench.goal import Goal
from bench.timing import Timing

BARE = "bare"  # prefix of the names of bare loops


@dataclasses.dataclass(frozen=True)
class Entry:
    """Another implementation that did the same work in the same rounds."""

    name: str
    timing: Timing


@dataclasses.dataclass(frozen=True)
class Row:
    """One part of the engine on one kind of batch."""

    part: str
    title: str
    threads: int
    ids: float  # per call
    megabytes: float  # the least that a call can move
    copy_gb_per_s: float  # of a memory copy in the same rounds, bytes read and written
    # Median and minimum time of a cache line's transfer to the other core; None with one thread.
    hand_over_ns: tuple[float, float] | None
    ours: Timing
    entries: tuple[Entry, ...]
    held_to: str  # the entry that the goal refers to; the fastest of several bare loops
    least: float  # the goal: our speed divided by that entry's, at least

    @property
    def copy_ms(self) -> float:
        """How long a memory copy of as many bytes takes."""
        return self.megabytes / self.copy_gb_per_s

    @property
    def ratio(self) -> float:
        """Our speed divided by that of the entry that the goal refers to."""
        return self.other.timing.median / self.ours.median

    @property
    def other(self) -> Entry:
        """The entry that the goal refers to."""
        (other,) = [entry for entry in self.entries if entry.name == self.held_to]
        return other

    def goal(self) -> Goal:
        """The row as a goal."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return Goal(f"{self.part}, {self.title}, {threads}", self.held_to, self.ratio, self.least)


def write_json(path: pathlib.Path, machine: dict[str, object], rows: Sequence[Row]) -> None:
    """Writes the rows, their ratios, and a description of the machine."""
    content = {
        "machine": machine,
        "rows": [{**dataclasses.asdict(row), "ratio": row.ratio} for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_rows(path: pathlib.Path) -> list[Row]:
    """Reads the rows that `write_json` wrote."""
    rows = []
    for fields in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        del fields["ratio"]
        if fields["hand_over_ns"] is not None:
            fields["hand_over_ns"] = tuple(fields["hand_over_ns"])
        fields["ours"] = Timing(**fields["ours"])
        fields["entries"] = tuple(
            Entry(entry["name"], Timing(**entry["timing"])) for entry in fields["entries"]
        )
        rows.append(Row(**fields))
    return rows


_HEAD = (
    "part",
    "what",
    "threads",
    "who",
    "ms (min)",
    "cpu ms",
    "M ids/s",
    "our speed / its",
    "/copy",
    "goal",
)


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown.

    Each has lines for the memory copy, the transfer between cores, the other implementations (of bare loops,
    the fastest), and ours.
    """
    return markdown.table(_HEAD, [cells for row in rows for cells in _lines(row)])


def _lines(row: Row) -> list[tuple[str, ...]]:
    question = row.part, row.title, str(row.threads)
    lines = [(*question, f"{row.megabytes:.1f} MB copied", f"{row.copy_ms:.3f}", "", "", "", "", "")]
    if row.hand_over_ns is not None:
        median, minimum = row.hand_over_ns
        far = f"{median:.0f} ns ({minimum:.0f})"
        lines.append((*question, "a cache line to the other core", far, "", "", "", "", ""))
    slower_loops = {entry for entry in row.entries if entry.name.startswith(BARE)} - {row.other}
    for entry in row.entries:
        if entry in slower_loops:
            continue
        ratio = f"{entry.timing.median / row.ours.median:.2f}"
        lines.append((*question, entry.name, *_times(row, entry.timing, ratio), ""))
    verdict = f"{row.goal().verdict()}: {row.ratio:.2f} of {row.least:g}"
    lines.append((*question, "engine", *_times(row, row.ours, ""), verdict))
    return lines


def _times(row: Row, timing: Timing, ratio: str) -> tuple[str, ...]:
    milliseconds = f"{timing.median:.3f} ({timing.minimum:.3f})"
    speed = f"{row.ids / timing.median / 1e3:.0f}"
    return milliseconds, f"{timing.median_cpu:.3f}", speed, ratio, f"{timing.median / row.copy_ms:.1f}"
