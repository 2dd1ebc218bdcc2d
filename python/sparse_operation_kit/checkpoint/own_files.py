"""Questions to the file system, and the folders of checkpoints.

`os.path.exists` and its like take every error for an absence. On a network file system that would make a
file disappear that cannot be looked at for a moment. Here only "no such file", "a part of the path is not a
folder" and a path that no file can have mean that there is none; every other error is raised.
"""

from __future__ import annotations

import errno
import os
import stat

# Python raises ValueError for a path with a zero byte.
_ABSENT = (FileNotFoundError, NotADirectoryError, ValueError)


def facts(path: str | os.PathLike) -> os.stat_result | None:
    """Returns the facts about what is at a path, or at the end of a link; None if there is nothing.

    Raises:
      OSError: The file system did not answer.
    """
    try:
        return os.stat(path)
    except _ABSENT:
        return None


def is_taken(path: str | os.PathLike) -> bool:
    """Returns whether anything has this name, also a link to nothing. Raises OSError as `facts`."""
    try:
        os.lstat(path)
    except _ABSENT:
        return False
    return True


def is_folder(path: str | os.PathLike) -> bool:
    """Returns whether there is a folder, or a link to one, at the path. Raises OSError as `facts`."""
    found = facts(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def names(folder: str | os.PathLike) -> list[str]:
    """Returns the sorted names in a folder; none if there is no folder. Raises OSError as `facts`."""
    try:
        return sorted(os.listdir(folder))
    except _ABSENT:
        return []


def sok2_description(folder: str | os.PathLike) -> str | None:
    """Returns the path that stands for a folder of SOK 2.x's files, as prefixes do for checkpoints.

    There need not be a file: newer versions write only `NAME-key` and `NAME-weight`, and never beside a list
    of checkpoints. Returns None for other folders. Raises OSError as `facts`.
    """
    found = set(names(folder))
    has_tables = any(name.endswith("-key") and f"{name[:-4]}-weight" in found for name in found)
    is_one = "meta_info" in found or (has_tables and "checkpoint" not in found)
    return os.path.join(folder, "meta_info") if is_one else None


def place(path: str) -> tuple[int, int, str] | None:
    """Returns what is equal for two paths of the same name in the same folder, however it is written.

    Returns None if there is no such folder. Raises OSError as `facts`.
    """
    folder, name = os.path.split(path)
    found = facts(folder or ".")
    return None if found is None else (found.st_dev, found.st_ino, name)


def make_folders(path: str | os.PathLike) -> None:
    """Makes the folder and its missing parents. Raises OSError that names the one that cannot be made.

    Unlike `os.makedirs`, reports any other error than an existing folder also for a folder that another
    process makes at the same time.
    """
    missing = []
    path = os.path.abspath(os.fspath(path))
    while not is_folder(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder)
        except FileExistsError:
            if not is_folder(folder):
                reason = f"Cannot create the folder '{folder}': something else of this name is in the way"
                raise OSError(errno.EEXIST, reason, folder) from None
