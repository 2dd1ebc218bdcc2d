"""`measure.py serving` under its own name."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import measure  # noqa: E402


def main(arguments: list[str]) -> int:
    """Runs the program; returns its exit status."""
    return measure.main(["serving", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
