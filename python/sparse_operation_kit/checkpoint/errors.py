"""CheckpointError, which the public functions of this package raise; text that is safe to print, and checks
of paths."""

from __future__ import annotations

import os
from pathlib import Path

# Linux's PATH_MAX, which includes the terminating zero byte.
_MAX_BYTES = 4096


def path_problem(path: str | os.PathLike) -> str | None:
    """Returns why `path` is not a valid path for the operating system, None if it is valid."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        return "has a zero byte, which a path cannot have"
    if len(encoded) >= _MAX_BYTES:
        return f"has {len(encoded)} bytes, more than a path can have"
    return None


def check_path(path: str | os.PathLike) -> Path:
    """Returns the path. Raises CheckpointError if it is not valid for the operating system."""
    problem = path_problem(path)
    if problem is not None:
        raise CheckpointError(os.fspath(path)[:200], problem)
    return Path(path)


def refuse_other_than_file(path: Path) -> None:
    """Raises CheckpointError if `path` exists and is not a file. Opening a pipe, for example, would block."""
    if os.path.lexists(path) and not path.is_file():
        raise CheckpointError(path, "is not a file")


def printable(text: str) -> str:
    r"""Returns `text` with all characters escaped that are not printable, so that it is one line.

    Control characters, line separators, characters that change the writing direction, and bytes of paths that
    are not UTF-8 become `\xNN`, one for each byte of UTF-8. All other characters are unchanged.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    # os.fsdecode maps each byte that is not UTF-8 to a surrogate.
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", errors))


class CheckpointError(Exception):
    """A checkpoint is damaged, incomplete, of another format or missing. Names the file and the reason."""

    def __init__(self, path: str | os.PathLike, reason: str) -> None:
        """`path` is the file or folder with the problem; `reason` describes it. Both may be any text."""
        super().__init__(printable(f"{os.fspath(path)}: {reason}"))
        self.path = os.fspath(path)
        self.reason = reason


class UnansweredError(CheckpointError):
    """The operating system could not read or write a file: this says nothing of what the file has."""
