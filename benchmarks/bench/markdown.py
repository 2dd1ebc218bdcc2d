"""Tables in Markdown, with columns aligned in the text."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table; each line has as many cells as the head."""
    widths = [max(len(line[column]) for line in (head, *lines)) for column in range(len(head))]
    text = [_joined(line, widths) for line in (head, *lines)]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"
