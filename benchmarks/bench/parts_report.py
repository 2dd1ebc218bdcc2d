"""What engine_parts.py measured: a row for each question."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from bench import markdown
from bench.goal import Goal
from bench.timing import Timing

BARE = "bare"  # what the names of bare loops begin with


@dataclasses.dataclass(frozen=True)
class Entry:
    """Something that did the same work in the same rounds."""

    name: str
    timing: Timing


@dataclasses.dataclass(frozen=True)
class Row:
    """One part of the engine on one kind of batch."""

    part: str
    title: str
    threads: int
    ids: float  # of a call
    megabytes: float  # that a call moves at least
    copy_gb_per_s: float  # the machine's memory copy in the same rounds, bytes read and written
    hand_over_ns: (
        tuple[float, float] | None
    )  # of a line to the other core, median and minimum; of threads > 1
    ours: Timing
    entries: tuple[Entry, ...]
    held_to: str  # the entry that the goal is about: of several bare loops, the fastest
    least: float  # what our speed over that entry's should be

    @property
    def copy_ms(self) -> float:
        """How long a memory copy of as many bytes takes."""
        return self.megabytes / self.copy_gb_per_s

    @property
    def ratio(self) -> float:
        """Our speed over that of the entry that we are held to."""
        return self.other.timing.median / self.ours.median

    @property
    def other(self) -> Entry:
        """The entry that we are held to."""
        (other,) = [entry for entry in self.entries if entry.name == self.held_to]
        return other

    def goal(self) -> Goal:
        """The row as one line."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return Goal(f"{self.part}, {self.title}, {threads}", self.held_to, self.ratio, self.least)


def write_json(path: pathlib.Path, machine: dict[str, object], rows: Sequence[Row]) -> None:
    """Writes the rows, their ratios, and what is known of the machine."""
    content = {
        "machine": machine,
        "rows": [{**dataclasses.asdict(row), "ratio": row.ratio} for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_rows(path: pathlib.Path) -> list[Row]:
    """The rows of a file that `write_json` wrote."""
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
    """The rows in Markdown: the bytes copied, how far apart cores are, what did the same (of bare loops the
    fastest), and ours."""
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
