"""Which tables are removed with old checkpoints, and which are kept for other checkpoints."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import pathlib
import re
import shutil
import socket

import numpy as np
import pytest
import tensorflow as tf

import checkpoint_files
import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import own_files, prefix_lock
from sparse_operation_kit.saver import retention, saver_marks


def _with_id(table: str) -> str:
    """A path, or its last part, with the 16 digits of an id for the number of the table "t-1"."""
    return re.sub(r"(^|/)t-(\d+)", lambda found: f"{found[1]}t-{found[2].zfill(16)}", table)


class Folder:
    """A directory of fake checkpoints of one table "t".

    Tests write "m.sok/t-1" for a table of the checkpoint "m", and "m.sok/t-1.unfinished" for what a killed
    save has left. `in_folders` says whether the tables are in folders, as in earlier versions.
    """

    def __init__(self, path: pathlib.Path, in_folders: bool):
        self.path = path
        self.in_folders = in_folders

    def table(self, base: str, table: str, chain: tuple[str, ...] = ()) -> str:
        """Makes a table's folder with a manifest; returns it relative to the directory."""
        arrays = {"keys": np.zeros([0], "<i8"), "values": np.zeros([0, 4], "<f4")}
        if chain:
            arrays["deleted"] = arrays["keys"]
        links = [{"path": f"../../{_with_id(link)}", "crc32": 0} for link in chain]
        folder = self.path / f"{base}.sok" / _with_id(table)
        checkpoint_files.write_folder(folder, [arrays], kind="delta" if chain else "full", chain=links)
        if not self.in_folders:
            self._put_beside(folder)
        return f"{base}.sok/{table}"

    @staticmethod
    def _put_beside(folder: pathlib.Path) -> None:
        """Moves a table's files out of its folder, to TensorFlow's."""
        start = f"{folder.parent}-{folder.name.split('.')[0]}"
        for file in [path for path in folder.rglob("*") if path.is_file()]:
            name = ".".join(file.relative_to(folder).parts)
            unfinished = folder.suffix if name == "manifest.json" else ""
            file.rename(f"{start}.{name}{unfinished}")
        shutil.rmtree(folder)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()

    def file(self, table: str, file: str) -> pathlib.Path:
        """The path of a table's file."""
        if self.in_folders:
            return self.path / _with_id(table) / file
        return saved_files.named_by(self.path, _with_id(table), file)

    def set_time(self, table: str, seconds: float) -> None:
        """Sets when a table was written."""
        file = self.file(table, "manifest.json")
        os.utime(file.parent if self.in_folders else file, (seconds, seconds))

    def checkpoint(self, base: str, reference: str | None, text: str | None = None) -> None:
        """Makes TensorFlow's part of a checkpoint."""
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            fields = {"folder": _with_id(reference or ""), "manifest_crc32": 0, "steps": 0}
            value = json.dumps(fields if reference else "no object") if text is None else text
            variable = tf.Variable(value, name="t")
            tf.Variable(1.0, name="dense")
            session.run(variable.initializer)
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.train.Saver().save(
                session, str(self.path / base), write_meta_graph=False, write_state=False
            )

    def full(self, base: str, table: str) -> None:
        self.checkpoint(base, self.table(base, table))

    def collect(self, base: str, removed=()) -> set[str]:
        """Removes unneeded tables; returns the remaining ones."""
        retention.collect(str(self.path / base), [str(self.path / one) for one in removed])
        return self.tables()

    def tables(self) -> set[str]:
        found = {str(path.relative_to(self.path)) for path in self.path.glob("*.sok/*")}
        for path in self.path.glob("*.sok-*"):
            base, name = re.fullmatch(r"(.+)\.sok-(t-\d+)\..+", path.name).groups()
            whole = os.path.lexists(self.path / f"{base}.sok-{name}.manifest.json")
            found.add(f"{base}.sok/{name}" + ("" if whole else ".unfinished"))
        return {re.sub("t-0+([0-9])", r"t-\1", table) for table in found}

    def remove_tensorflows(self, base: str) -> None:
        for path in self.path.glob(f"{base}.[!s]*"):
            path.unlink()


@pytest.fixture(params=["files", "folders"])
def folder(request, tmp_path):
    return Folder(tmp_path, request.param == "folders")


def test_tables_are_removed_with_their_checkpoint(folder):
    for step in (1, 2, 3):
        folder.full(f"model-{step}", f"t-{step}")
    folder.remove_tensorflows("model-1")
    assert folder.collect("model-3") == {"model-2.sok/t-2", "model-3.sok/t-3"}
    assert saved_files.bases(folder.path) == ["model-2", "model-3"]


def test_another_family_is_left_alone(folder):
    folder.full("model-3", "t-3")
    for base in ("other-1", "model-3-best", "model", "models-1"):
        folder.table(base, "t-1")
    assert folder.collect("model-3") == {
        "model-3.sok/t-3",
        "other-1.sok/t-1",
        "model-3-best.sok/t-1",
        "models-1.sok/t-1",
    }


def test_tables_of_checkpoints_that_tensorflow_removed_are_removed(folder):
    folder.full("b", "t-2")
    folder.table("a", "t-1")
    folder.table("c", "t-3")
    assert folder.collect("b", removed=["a"]) == {"b.sok/t-2", "c.sok/t-3"}


def test_leftovers_of_killed_saves(folder):
    folder.table("model-1", "t-1.unfinished")
    folder.table("model-2", "t-2")
    (folder.path / "model-4.sok").mkdir()
    folder.table("model-3", "t-2.unfinished")
    folder.table("model-3", "t-0")
    folder.full("model-3", "t-3")
    assert folder.collect("model-3") == {"model-3.sok/t-3"}
    assert saved_files.bases(folder.path) == ["model-3"]


def test_the_chain_of_an_incremental_checkpoint_stays(folder):
    full = folder.table("model-1", "t-1")
    unneeded = folder.table("model-2", "t-2")
    first = folder.table("model-3", "t-3", (full,))
    last = folder.table("model-4", "t-4", (full, first))
    folder.checkpoint("model-4", last)
    assert folder.collect("model-4") == {full, first, last}
    assert unneeded not in folder.tables()
    folder.full("model-5", "t-5")
    folder.remove_tensorflows("model-4")
    assert folder.collect("model-5") == {"model-5.sok/t-5"}


def test_an_incremental_checkpoint_upon_one_of_the_same_prefix(folder):
    full = folder.table("model-1", "t-1")
    delta = folder.table("model-1", "t-2", (full,))
    folder.table("model-1", "t-0")
    folder.checkpoint("model-1", delta)
    assert folder.collect("model-1") == {full, delta}


def test_a_copied_checkpoint_keeps_the_tables_that_it_refers_to(folder):
    table = folder.table("model-1", "t-1")
    folder.checkpoint("best", table)
    folder.full("model-2", "t-2")
    assert folder.collect("model-2") == {table, "model-2.sok/t-2"}


def test_a_renamed_checkpoint_keeps_its_own(folder):
    folder.table("best-1", "t-1")
    folder.checkpoint("best-1", "model-1.sok/t-1")
    folder.full("best-2", "t-2")
    folder.table("best-0", "t-0")
    assert folder.collect("best-2") == {"best-1.sok/t-1", "best-2.sok/t-2"}


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _folder(path):
    path.unlink()
    path.mkdir()


def _socket(path):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        # Paths of sockets must be short.
        os.chdir(path.parent)
        made.bind(path.name)


def _huge(path):
    os.truncate(path, 1 << 40)


BAD_FILES = {
    "damaged": lambda path: path.write_bytes(b"damaged"),
    "nested": lambda path: path.write_bytes(b"[" * 200_000 + b"]" * 200_000),
    "no text": lambda path: path.write_bytes(bytes(range(256))),
    "empty": lambda path: path.write_bytes(b""),
    "huge": _huge,
    "pipe": _pipe,
    "folder": _folder,
    "socket": _socket,
    "device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "dangling link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "unreadable": lambda path: path.chmod(0),
}


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize("damaged", ["model-2.index", "manifest"])
def test_what_cannot_be_read_keeps_what_was_there_before(folder, damaged, kind, caplog, monkeypatch):
    """It neither stops nor blocks the removal of others, and is reported once."""
    monkeypatch.chdir(folder.path)
    older = folder.table("model-0", "t-0")
    base = folder.table("model-1", "t-1")
    folder.checkpoint("model-2", folder.table("model-2", "t-2", (base,)))
    bad = folder.file("model-2.sok/t-2", "manifest.json") if damaged == "manifest" else folder.path / damaged
    if os.geteuid() == 0 and kind == "unreadable":
        pytest.skip("root reads everything")
    BAD_FILES[kind](bad)
    time_of_bad = os.lstat(folder.path / "model-2.index").st_mtime
    folder.set_time(folder.table("model-3", "t-3"), time_of_bad + 5)
    folder.full("model-4", "t-4")
    with caplog.at_level(logging.WARNING):
        assert folder.collect("model-4") == {older, base, "model-2.sok/t-2", "model-4.sok/t-4"}
        folder.collect("model-4")
    assert len(caplog.records) == 1 and str(bad.parent / bad.stem) in caplog.text


def test_references_of_hostile_text(folder, caplog):
    for number, text in enumerate(["{" * 100_000, '{"folder": "\\u0000"}', '{"folder": "../../../../x"}']):
        folder.checkpoint(f"bad-{number}", None, text)
    folder.full("model-1", "t-1")
    with caplog.at_level(logging.WARNING):
        assert folder.collect("model-1") == {"model-1.sok/t-1"}


def test_a_save_beside_old_checkpoints_that_are_pipes(tmp_path, caplog):
    """A save finishes without error and removes what it can."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("t", dim=2)
        rows = tf.nn.embedding_lookup(table, np.arange(4))
        saver = tf.compat.v1.train.Saver(max_to_keep=2)
        harness.initialize(session)
        session.run(rows)
        prefix = str(tmp_path / "model")
        for step in range(2):
            saver.save(session, prefix, global_step=step)
        manifest = saved_files.manifest(f"{prefix}-1")
        _pipe(manifest)
        with caplog.at_level(logging.WARNING):
            for step in range(2, 6):
                saver.save(session, prefix, global_step=step)
        assert saved_files.bases(tmp_path) == ["model-4", "model-5"]
        assert str(manifest) in caplog.text
        saver.restore(session, f"{prefix}-5")


def test_checkpoints_of_others_are_no_obstacle(folder):
    folder.checkpoint("plain", None)
    folder.table("model-1", "t-1")
    folder.full("model-2", "t-2")
    assert folder.collect("model-2") == {"model-2.sok/t-2"}


def test_a_directory_that_is_not_there(folder, caplog):
    retention.collect(str(folder.path / "nowhere" / "model-1"))
    assert not caplog.text


def test_the_present_directory(folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.table("model-1", "t-1")
    folder.full("model-2", "t-2")
    retention.collect("model-2")
    assert folder.tables() == {"model-2.sok/t-2"}


def test_tables_in_other_directories_go_with_their_checkpoints(folder):
    other = Folder(folder.path / "other", folder.in_folders)
    full = other.table("model-1", "t-1")
    other.table("model-2", "t-2", (full,))
    other.table("best-1", "t-1")
    other.full("model-3", "t-3")
    folder.full("model-4", "t-4")
    retention.collect(str(folder.path / "model-4"), [str(other.path / "model-2")])
    assert other.tables() == {"best-1.sok/t-1", "model-3.sok/t-3"}


def test_a_chain_into_another_directory_stays(folder):
    other = Folder(folder.path / "other", folder.in_folders)
    full = other.table("model-1", "t-1")
    folder.checkpoint("model-2", folder.table("model-2", "t-2", (f"other/{full}",)))
    other.full("model-3", "t-3")
    kept = [str(folder.path / "model-2")]
    retention.collect(str(other.path / "model-3"), [str(other.path / "model-1")], kept)
    assert other.tables() == {full, "model-3.sok/t-3"}
    folder.remove_tensorflows("model-2")
    retention.collect(str(other.path / "model-3"), [str(folder.path / "model-2")])
    assert (folder.tables(), other.tables()) == (set(), {"model-3.sok/t-3"})


@pytest.mark.parametrize("table", ["model-1.sok/t-1", "model-2.sok/t-2.unfinished"])
def test_locked_folders_are_kept(folder, table):
    folder.table("model-1", "t-1")
    folder.table("model-2", "t-2.unfinished")
    folder.full("model-3", "t-3")
    with prefix_lock.acquire(str(folder.path / table.split(".")[0]), 0):
        assert folder.collect("model-3", removed=["model-1"]) == {table, "model-3.sok/t-3"}
    assert folder.collect("model-3") == {"model-3.sok/t-3"}
    assert not list(folder.path.glob("*.lock"))


def test_an_index_that_comes_while_the_lock_is_waited_for_counts(folder, monkeypatch):
    """A folder had no index when it was listed, but its save finished before its lock was acquired."""
    folder.table("model-1", "t-1")
    folder.full("model-2", "t-2")
    try_acquire = prefix_lock.try_acquire

    def after_the_save(prefix):
        if prefix.endswith("model-1"):
            folder.checkpoint("model-1", "model-1.sok/t-1")
        return try_acquire(prefix)

    monkeypatch.setattr(prefix_lock, "try_acquire", after_the_save)
    assert folder.collect("model-2") == {"model-1.sok/t-1", "model-2.sok/t-2"}


def test_a_partly_removed_table_does_not_look_complete(folder, monkeypatch):
    folder.table("model-1", "t-1")
    folder.full("model-2", "t-2")
    remove = own_files.remove_tree

    def fail(path):
        if not path.name.endswith(".manifest.json"):
            raise OSError("killed")
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(own_files, "remove_tree", fail)
        assert folder.collect("model-2") == {"model-1.sok/t-1.unfinished", "model-2.sok/t-2"}
    assert folder.collect("model-2") == {"model-2.sok/t-2"}


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_checkpoint_whose_index_cannot_be_looked_at_stays(tmp_path, monkeypatch, error):
    """Only an index that is known to be missing tells that a marked checkpoint is not complete."""
    folder = Folder(tmp_path, in_folders=False)
    folder.full("m-2", "t-2")
    saver_marks.end(str(tmp_path / "m-2"), saver_marks.FULL)
    files = sorted(path.name for path in tmp_path.iterdir())
    real = os.lstat

    def lstat(path, **options):
        if os.fspath(path).endswith("m-2.index"):
            raise OSError(error, os.strerror(error), path)
        return real(path, **options)

    monkeypatch.setattr(os, "lstat", lstat)
    retention.collect(str(tmp_path / "m-2"), [])
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_only_tensorflows_own_names_go_with_a_killed_save(tmp_path):
    folder = Folder(tmp_path, in_folders=False)
    folder.full("m-2", "t-2")
    kept = {path.name for path in tmp_path.iterdir()}
    temporary = f"m-1_temp_{32 * 'a'}"
    killed = ("m-1.meta", "m-1.data-00000-of-00002", "m-1.data-00001-of-00002", "m-1_temp", temporary)
    others = (
        "m-1.meta.mine",
        "m-1.data-00000-of-00002.mine",
        "m-1_temp_of_mine",
        "m-1.notes",
        "of-m-1.meta",
        "m-10.meta",
    )
    for name in (*killed, *others):
        (tmp_path / name).touch()
    saver_marks.begin(str(tmp_path / "m-1"), saver_marks.FULL)
    retention.collect(str(tmp_path / "m-2"))
    assert {path.name for path in tmp_path.iterdir()} == {*kept, *others}
