"""How the calls of each kind fail."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping

from failing_calls.shim import Failure

_ERRORS = {
    "open": (errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE),
    "create": (errno.ENOSPC, errno.EACCES, errno.EMFILE),
    "read": (errno.EIO, errno.ESTALE),
    "write": (errno.EIO, errno.ENOSPC),
    "sync": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.ENOSPC),
    "link": (errno.EIO, errno.EACCES),
    "unlink": (errno.EIO, errno.EACCES),
    "make_folder": (errno.ENOSPC, errno.EACCES),
    "resize": (errno.ENOSPC,),
    "lock": (errno.EIO, errno.ENOLCK),
    "close": (errno.EIO,),
    "question": (errno.EIO, errno.ESTALE, errno.EACCES),
    "list": (errno.EIO, errno.ESTALE),
    "map": (errno.ENOMEM,),
    "seek": (errno.EIO,),
    "advise": (errno.EIO,),
    "control": (errno.EIO,),
    "allocation": (0,),
    "thread": (0,),
}
# Calls that a network file system may have made although it returns an error.
_MADE = ("rename", "link", "unlink", "make_folder", "create")
_CHANGES = ("create", "write", "sync", "rename", "link", "unlink", "make_folder", "resize")
# What fails on a full disk, and where a process has no descriptors.
_FULL, _FEW = "create+write+make_folder+link+resize", "open+create"
_DESCRIPTORS = 12


def failures(counts: Mapping[str, int], kills: bool) -> Iterator[Failure]:
    """Yields all ways in which one of so many calls of each kind fails.

    Args:
      counts: The number of calls of each kind.
      kills: Whether also to end the process before and after each call that changes files.
    """
    for kind, count in counts.items():
        for number in range(1, count + 1):
            for error in _ERRORS[kind]:
                yield Failure(kind, "fail", number, error)
            if kind == "allocation":
                yield Failure(kind, "fail", number, lasting=True)
            if kind in _MADE:
                yield Failure(kind, "after", number, errno.EIO)
            if kind in ("read", "write"):
                yield Failure(kind, "short", number)
            if kills and kind in _CHANGES:
                yield Failure(kind, "kill before", number)
                yield Failure(kind, "kill after", number)
    if "open" not in counts:
        return
    for kinds, error in ((_FULL, errno.ENOSPC), (_FEW, errno.EMFILE)):
        for number in range(1, sum(counts.get(kind, 0) for kind in kinds.split("+")) + 1):
            yield Failure(kinds, "fail", number, error, lasting=True)
    for free in range(_DESCRIPTORS):
        yield Failure("descriptors", "fail", free, lasting=True)
