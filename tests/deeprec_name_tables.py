"""Makes the tables of names in docs/from-deeprec.md. Run as a program, it writes them there:

tools/python.sh tests/deeprec_name_tables.py
"""

from __future__ import annotations

import pathlib

import optimizer_tables
from sparse_operation_kit.deeprec.names import NAMES, Row

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "from-deeprec.md"


def with_tables(text: str) -> str:
    """The document with the tables between their marks replaced."""
    tables = [
        "\n".join([f"| {title} | | |", "|---|---|---|", *map(_line, rows)]) for title, rows in NAMES.items()
    ]
    whole = "\n\n".join(["", *tables, ""]).lstrip("\n")
    return optimizer_tables.replaced(text, {"names": f"\n{whole}"}, "tests/deeprec_name_tables.py")


def _line(row: Row) -> str:
    what = ", ".join(f"`{name}`" for name in row.names) or str(row.what)
    return f"| {what} | {row.answer} | {row.note} |".replace("|  |", "| |")


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))
