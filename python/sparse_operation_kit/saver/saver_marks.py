"""Marks of checkpoints that say which kind of Saver counts them for its `max_to_keep`.

The mark of the checkpoint with the prefix `P` is the empty file `P.sok-full` or `P.sok-incremental`. It is
made before the checkpoint and removed after it, so that Savers of later sessions know what is theirs,
wherever a process was killed. A mark without a checkpoint is what a killed save or removal has left.

A checkpoint without a mark is nobody's: one that a Saver without `max_to_keep` saved, that
`keep_checkpoint_every_n_hours` keeps, or that was renamed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable

from sparse_operation_kit.checkpoint import own_files
from sparse_operation_kit.checkpoint.printable import printable

FULL, INCREMENTAL = ".sok-full", ".sok-incremental"
# If a process is killed while it changes a mark, there are both, and the first of these counts.
_KINDS = (FULL, INCREMENTAL)

_log = logging.getLogger(__name__)


def begin(prefix: str, kind: str | None) -> None:
    """Before a save: marks a checkpoint that does not exist yet. Raises OSError.

    Args:
      prefix: The checkpoint's prefix, whose lock the caller holds.
      kind: FULL, INCREMENTAL, or None if the Saver does not count the checkpoint.
    """
    if kind is not None and not own_files.is_there(f"{prefix}.index"):
        _make(prefix + kind)


def end(prefix: str, kind: str | None) -> None:
    """After a save: marks the checkpoint, or removes its mark. See `begin`; errors are only logged."""
    try:
        if kind is not None:
            _make(prefix + kind)
        for other in _KINDS:
            if other != kind:
                own_files.remove_tree(prefix + other)
    except OSError as error:
        _log.warning(
            "%s", printable(f"max_to_keep may not count {prefix} correctly after a restart: {error}")
        )


def kind_of(prefix: str) -> str | None:
    """Returns FULL, INCREMENTAL, or None if the checkpoint has no mark. Raises OSError."""
    return next((kind for kind in _KINDS if own_files.is_there(prefix + kind)), None)


def marked(stem: str, kind: str) -> list[str]:
    """Returns the prefixes `stem-STEP` that have a mark of this kind. Raises OSError."""
    name = re.compile(re.escape(os.path.basename(stem)) + r"-\d+")
    entries = set(os.listdir(os.path.dirname(stem) or "."))
    bases = {entry[: -len(kind)] for entry in entries if entry.endswith(kind)}
    prefixes = [os.path.join(os.path.dirname(stem), base) for base in sorted(bases) if name.fullmatch(base)]
    return [prefix for prefix in prefixes if kind_of(prefix) == kind]


def bases_in(names: Iterable[str]) -> set[str]:
    """Returns the prefixes, without their directory, that have a mark among the names in it."""
    return {name[: -len(kind)] for name in names for kind in _KINDS if name.endswith(kind)}


def _make(path: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
