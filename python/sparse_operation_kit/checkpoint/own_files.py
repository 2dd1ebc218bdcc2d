"""Files and folders that a checkpoint owns, reached without following a symbolic link.

A checkpoint owns the folder `<prefix>.sok` and its contents. From the last component of a path that ends with
".sok", a link is removed itself, and otherwise refused; links before that component are the user's, and are
followed. No file is opened through a link of its own name, wherever it is.
`cc/checkpoint/posix_files.cc` follows the same rule.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

_OWN_FOLDER = ".sok"
# More than any folder of a checkpoint is deep.
_MAX_DEPTH = 100
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC


def opener(path: str, flags: int) -> int:
    """Opens a file: the `opener` of `open()`. Raises OSError whose `strerror` names the link in the way."""
    with _place(os.fspath(path)) as (folder, name):
        return _open(name, flags | os.O_CLOEXEC, folder, path)


def names(path: str | os.PathLike) -> list[str]:
    """Returns the names in a folder, in order. Raises OSError, as for a link."""
    with _place(os.fspath(path)) as (folder, name):
        descriptor = _open(name, os.O_RDONLY | _FOLDER, folder, path)
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)


def make_folder(path: str | os.PathLike) -> None:
    """Makes one folder, which must not be there yet."""
    with _place(os.fspath(path)) as (folder, name):
        os.mkdir(name, dir_fd=folder)


def make_folders(path: str | os.PathLike) -> None:
    """Makes a folder of the user's, and those that it lies in, as far as they are missing.

    Raises OSError, which says what is in the way of which folder.
    """
    missing = []
    path = os.path.abspath(os.fspath(path))
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder)
        except FileExistsError:
            if not os.path.isdir(folder):
                reason = f"Cannot make the folder '{folder}': something else of this name is in the way"
                raise OSError(errno.EEXIST, reason, folder) from None


def rename(path: str | os.PathLike, name: str) -> None:
    """Gives a file, a folder or a link another name in its folder."""
    with _place(os.fspath(path)) as (folder, old):
        os.rename(old, name, src_dir_fd=folder, dst_dir_fd=folder)


def remove_tree(path: str | os.PathLike) -> None:
    """Removes a file, a link, or a folder with all that is in it, the links in it as what they are.

    Fine with what is not there, or goes meanwhile. Raises OSError for what cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError), _place(os.fspath(path)) as (folder, name):
        _remove(folder, name, _MAX_DEPTH)


def _remove(folder: int, name: str, depth: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # what unlink says of a folder
        if depth == 0:
            raise
    with contextlib.suppress(FileNotFoundError):
        inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | _FOLDER, dir_fd=folder)
        try:
            for entry in os.listdir(inner):
                _remove(inner, entry, depth - 1)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


@contextlib.contextmanager
def _place(path: str) -> Iterator[tuple[int, str]]:
    """(the folder that the last component of a path is in, open; that component)."""
    parts = path.split("/")
    own = [number for number, part in enumerate(parts) if part.endswith(_OWN_FOLDER)]
    first = own[-1] if own else len(parts) - 1
    user = "/".join(parts[:first])
    folder = os.open(user or ("/" if path.startswith("/") else "."), os.O_PATH | _FOLDER)
    try:
        for number in range(first, len(parts) - 1):
            if parts[number] not in ("", "."):
                inner = _open(parts[number], os.O_PATH | _FOLDER, folder, "/".join(parts[: number + 1]))
                os.close(folder)
                folder = inner
        yield folder, parts[-1]
    finally:
        os.close(folder)


def _open(name: str, flags: int, folder: int, path: str | os.PathLike) -> int:
    """`os.open` that follows no link, and says so; `path` is the whole one."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    except OSError as error:
        facts = None
        with contextlib.suppress(OSError):
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if facts is None or not stat.S_ISLNK(facts.st_mode):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        reason = (
            f"'{os.fspath(path)}' is a symbolic link: a checkpoint's own folders and files are never links"
        )
        raise OSError(errno.ELOOP, reason, os.fspath(path)) from None
