"""The results of all workloads: as tables in Markdown, as JSON, and as goals that are reached or missed."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bench.timing import Timing


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a contender's time divided by ours must be at least, and what it should reach, if more."""

    beside: str
    least: float
    aim: float | None = None


@dataclasses.dataclass(frozen=True)
class Result:
    """What was measured in the same rounds.

    Attributes:
      question: what was measured, by the names of flags: the optimizer, the dim, ...
      timings: of the contenders, in the order of the table.
      ours: the contender that ratios refer to: a time divided by ours. Above 1, ours is faster.
      counts: numbers that do not depend on time, such as the ids of a call.
      amount, unit: what a call processes, such as 0.1 "M ids"; the table has each contender's speed.
      goals: the goals that apply.
    """

    question: dict[str, Any]
    timings: dict[str, Timing]
    ours: str = ""
    counts: dict[str, float] = dataclasses.field(default_factory=dict)
    amount: float = 0
    unit: str = ""
    goals: tuple[Goal, ...] = ()

    def ratio(self, name: str) -> float:
        """A contender's time divided by ours."""
        return self.timings[name].median / self.timings[self.ours].median


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table with columns aligned in the text; each line has as many cells as the head."""
    widths = [max(len(line[column]) for line in (head, *lines)) for column in range(len(head))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
        for line in (head, *lines)
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def table(results: Sequence[Result]) -> str:
    """The results in Markdown: a line for each contender; what is the same in all stands above."""
    varied = varied_keys(results)
    counts = list(dict.fromkeys(count for result in results for count in result.counts))
    units = list(dict.fromkeys(result.unit for result in results if result.unit))
    timed = any(result.timings for result in results)
    head = [*varied, *counts]
    if timed:
        head += ["who", "ms (min)", "cpu ms", "/ours", "cpu /ours", *(f"{unit}/s" for unit in units)]
    lines = []
    for result in results:
        first = [text_of(result.question.get(key, "")) for key in varied]
        first += [text_of(result.counts.get(count, "")) for count in counts]
        lines += [
            (first if number == 0 else [""] * len(first)) + _cells(result, name, units)
            for number, name in enumerate(result.timings)
        ] or [first]
    above = title(results[0], varied) if results else ""
    return (f"{above}\n\n" if above else "") + markdown(head, lines)


def _cells(result: Result, name: str, units: Sequence[str]) -> list[str]:
    timing, ours = result.timings[name], result.timings[result.ours]
    cells = [name, f"{timing.median:.3f} ({timing.minimum:.3f})", f"{timing.median_cpu:.3f}"]
    cells += [f"{result.ratio(name):.2f}", _ratio(timing.median_cpu, ours.median_cpu)]
    return cells + [
        text_of(result.amount / timing.median * 1e3) if result.unit == unit else "" for unit in units
    ]


def _ratio(value: float, ours: float) -> str:
    return f"{value / ours:.2f}" if value and ours else ""


def text_of(value: object) -> str:
    """A value in a cell: numbers with four digits, or all those of whole numbers."""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    return str(value)


def title(result: Result, without: Sequence[str] = ()) -> str:
    """What was measured, in words, without some names of flags."""
    return ", ".join(
        f"{key} {text_of(value)}" for key, value in result.question.items() if key not in without
    )


def varied_keys(results: Sequence[Result]) -> list[str]:
    """The names in questions whose values differ between results."""
    keys = dict.fromkeys(key for result in results for key in result.question)
    return [key for key in keys if len({str(result.question.get(key)) for result in results}) > 1]


def goals_table(results: Sequence[Result]) -> str:
    """The goals of the results in Markdown."""
    head = ("what", "beside", "ratio", "at least", "aim", "")
    lines = []
    for result in results:
        for goal in result.goals:
            ratio = result.ratio(goal.beside)
            verdict = "reached" if ratio >= goal.least else "missed"
            aim = "" if goal.aim is None else f"{goal.aim:g}"
            lines.append((title(result), goal.beside, f"{ratio:.2f}", f"{goal.least:.3g}", aim, verdict))
    return markdown(head, lines)


def write(path: pathlib.Path, workload: str, machine: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Writes all numbers as JSON."""
    rows = [dataclasses.asdict(result) for result in results]
    content = {"workload": workload, "machine": machine, "results": rows}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(path: pathlib.Path) -> list[Result]:
    """Reads the results of a file of `write`."""
    return [result_of(fields) for fields in json.loads(path.read_text(encoding="utf-8"))["results"]]


def joined(results: Sequence[Result]) -> list[Result]:
    """Results that ask the same in one, with all contenders and goals. Of equal ones, the first counts."""
    by_question: dict[str, Result] = {}
    for result in results:
        before = by_question.setdefault(json.dumps(result.question), result)
        timings, counts = {**result.timings, **before.timings}, {**result.counts, **before.counts}
        in_order = {name: timings[name] for name in (*before.timings, *result.timings)}
        by_question[json.dumps(result.question)] = dataclasses.replace(
            before,
            timings=in_order,
            counts=counts,
            goals=tuple(dict.fromkeys((*before.goals, *result.goals))),
        )
    return list(by_question.values())


def replace_tables(path: pathlib.Path, text: str) -> None:
    """Puts the tables of `text` in place of those of a Markdown file that have the same heads."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for table_text in text.split("\n\n"):
        new = table_text.splitlines()
        if not new[0].startswith("|"):
            continue
        heads = [place for place, line in enumerate(lines) if _cells_of(line) == _cells_of(new[0])]
        if len(heads) != 1:
            raise SystemExit(f"{path} has {len(heads)} tables with the head {new[0]}")
        end = heads[0]
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        lines[heads[0] : end] = new
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def result_of(fields: Mapping[str, Any]) -> Result:
    """The result of a dict that `dataclasses.asdict` made."""
    timings = {name: Timing(**timing) for name, timing in fields["timings"].items()}
    return Result(**{**fields, "timings": timings, "goals": tuple(Goal(**goal) for goal in fields["goals"])})
