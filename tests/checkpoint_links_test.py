"""Symbolic links among the files of a checkpoint: their targets are not read, written or removed."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from checkpoint_files import History
from sparse_operation_kit.checkpoint import CheckpointError, cli, compact, export, open_checkpoint
from sparse_operation_kit.saver import retention

train = tf.compat.v1.train
LEAF = "t-0123456789abcdef"


class Victim:
    """A folder that belongs to somebody else."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        (path / "deeper").mkdir(parents=True)
        for name in ("precious", "manifest.json", "deeper/precious"):
            (path / name).write_text("bytes")
        self._before = self._contents()

    def _contents(self):
        return {path: path.read_text() if path.is_file() else None for path in self.path.rglob("*")}

    def assert_unharmed(self):
        assert self._contents() == self._before


@pytest.fixture
def victim(tmp_path):
    victim = Victim(tmp_path / "victim")
    yield victim
    victim.assert_unharmed()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "ckpt"
    path.mkdir()
    return path


class Model:
    """A table "t" with three rows."""

    def __init__(self, session):
        self.session = session
        self.table = sok.EmbeddingVariable("t", dim=2)
        self.rows = tf.nn.embedding_lookup(self.table, tf.constant([1, 2, 3], tf.int64))
        self.saver = train.Saver()
        harness.initialize(session)
        self.before = session.run(self.rows)


@pytest.fixture
def model():
    with harness.graph_and_session() as session:
        yield Model(session)


def refused(link):
    """Expects an error that names a link."""
    return pytest.raises((tf.errors.OpError, CheckpointError), match=f"'{link}' is a symbolic link")


def moved_behind_a_link(path: pathlib.Path) -> pathlib.Path:
    """Moves a file or folder elsewhere and puts a link to it in its place; returns the new path."""
    elsewhere = path.with_name("elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    return elsewhere


def own(path):
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    "link",
    [
        f"m.sok/{LEAF}.unfinished",
        f"m.sok/{LEAF}",
        f"m.sok/{LEAF}.unfinished/link",
        f"m.sok/{LEAF}/shard-00000/values.npy",
        "m.sok/anything",
        f"m.sok-{LEAF}.manifest.json",
        f"m.sok-{LEAF}.shard-00000.values.npy",
        f"m.sok-{LEAF}.shard-00001.json",
    ],
)
def test_a_save_removes_links_and_not_what_they_lead_to(victim, folder, model, link):
    path = folder / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(victim.path)
    saved = model.saver.save(model.session, str(folder / "m"))
    assert not path.is_symlink()
    assert len(saved_files.of(folder / "m", "manifest.json")) == 1
    assert not (folder / "m.sok").exists()
    model.saver.restore(model.session, saved)


def test_the_folder_of_an_older_checkpoint_is_a_link(victim, folder, model):
    (folder / "m-7.sok").symlink_to(victim.path)
    own(folder / "m-6.sok")
    (folder / "m-6.sok" / LEAF).symlink_to(victim.path)
    model.saver.save(model.session, str(folder / "m"), global_step=8)
    assert saved_files.bases(folder) == ["m-8"]


@pytest.mark.parametrize("target", ["victim", "nowhere"])
def test_a_save_into_a_link_is_refused(victim, folder, model, target):
    link = folder / "m.sok"
    link.symlink_to(victim.path.with_name(target))
    with refused(link):
        model.saver.save(model.session, str(folder / "m"))
    assert not (victim.path.with_name("nowhere")).exists()
    # The model can be saved elsewhere.
    model.saver.save(model.session, str(folder / "n"))


def test_a_link_in_the_place_of_a_lock(victim, folder, model):
    link = folder / "m.sok.lock"
    link.symlink_to(victim.path / "precious")
    with pytest.raises(tf.errors.FailedPreconditionError, match=str(link)):
        model.saver.save(model.session, str(folder / "m"))
    # A link in place of an older checkpoint's lock is no obstacle.
    own(folder / "m-1.sok" / LEAF)
    model.saver.save(model.session, str(folder / "m"), global_step=2)
    assert not (folder / "m-1.sok").exists()


def test_the_users_directory_may_be_a_link(folder, model, tmp_path):
    directory = tmp_path / "link"
    directory.symlink_to(folder)
    saver = train.Saver(max_to_keep=1)
    for step in range(3):
        saved = saver.save(model.session, str(directory / "m"), global_step=step)
    assert saved_files.bases(folder) == ["m-2"]
    saver.restore(model.session, saved)
    np.testing.assert_array_equal(model.session.run(model.rows), model.before)
    assert cli.main(["verify", saved]) == 0


@pytest.mark.parametrize("part", ["", "*", "*/manifest.json", "*/shard-00000", "*/shard-00000/values.npy"])
def test_nothing_is_restored_or_read_through_a_link_in_an_old_folder(folder, model, part):
    saved = model.saver.save(model.session, str(folder / "m"))
    old = saved_files.move_into_folder(saved)
    (path,) = old.glob(part) if part else [old]
    _assert_refused(model, saved, path)


@pytest.mark.parametrize("file", ["manifest.json", "shard-00000/values.npy"])
def test_nothing_is_restored_or_read_through_a_link(folder, model, file):
    saved = model.saver.save(model.session, str(folder / "m"))
    (path,) = saved_files.of(saved, file)
    _assert_refused(model, saved, path)


def _assert_refused(model, saved, path):
    """Expects that neither a restore nor a reader follows a link in place of `path`."""
    moved_behind_a_link(path)
    with refused(path):
        model.saver.restore(model.session, saved)
    np.testing.assert_array_equal(model.session.run(model.rows), model.before)
    with refused(path):
        [
            list(entry.open().last.shards[0].arrays["values"].blocks(10))
            for entry in open_checkpoint(saved).tables
        ]


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize("named", ["m", "m.sok", "the file"])
def test_the_command_line_reads_through_no_link(folder, model, capsys, command, named):
    model.saver.save(model.session, str(folder / "m"))
    link = saved_files.manifest(folder / "m")
    moved_behind_a_link(link)
    assert cli.main([command, str(link if named == "the file" else folder / named)]) != 0
    output = "".join(capsys.readouterr())
    assert f"'{link}' is a symbolic link" in output


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize("named", ["m", "m.sok", f"m.sok/{LEAF}"])
def test_the_command_line_reads_through_no_link_in_an_old_folder(folder, model, capsys, command, named):
    saved_files.move_into_folder(model.saver.save(model.session, str(folder / "m")))
    (table,) = (folder / "m.sok").iterdir()
    named = str(folder / named).replace(LEAF, table.name)
    link = table if named.endswith(table.name) else folder / "m.sok"
    moved_behind_a_link(link)
    assert cli.main([command, named]) != 0
    output = "".join(capsys.readouterr())
    assert f"'{link}' is a symbolic link" in output


def saved_chain(folder):
    history = History(folder, np.random.default_rng(0))
    for step in range(2):
        history.train()
        history.save(f"m-{step}", delta=step > 0)
    return history


def test_a_chain_leads_through_no_link(folder):
    saved = saved_chain(folder).saved[-1]
    compact(open_checkpoint(saved.folder), folder / "good")
    link = folder / "m-0.sok"
    moved_behind_a_link(link)
    with refused(link):
        open_checkpoint(saved.folder).tables[0].open()
    with refused(link):
        compact(open_checkpoint(saved.folder), folder / "new")
    assert not list(folder.glob("new*"))


@pytest.mark.parametrize("suffix", [".sok", ".index"])
@pytest.mark.parametrize("target", ["victim", "nowhere"])
def test_nothing_is_compacted_into_a_link(victim, folder, suffix, target):
    saved = saved_chain(folder).saved[-1]
    link = folder / f"new{suffix}"
    link.symlink_to(victim.path.with_name(target))
    with pytest.raises(CheckpointError, match=str(link)):
        compact(open_checkpoint(saved.folder), folder / "new")


@pytest.mark.parametrize("target", ["victim", "nowhere"])
@pytest.mark.parametrize("file_format", ["npy", "saved_model"])
def test_nothing_is_exported_into_a_link(victim, folder, file_format, target):
    saved = saved_chain(folder).saved[-1]
    link = folder / "out"
    link.symlink_to(victim.path.with_name(target))
    with pytest.raises(CheckpointError, match=str(link)):
        export(open_checkpoint(saved.folder), link, file_format)


def test_an_export_through_links_of_the_users(folder, tmp_path):
    saved = saved_chain(folder).saved[-1]
    directory = tmp_path / "link"
    directory.symlink_to(own(tmp_path / "disk"))
    export(open_checkpoint(saved.folder), directory / "out", "npy")
    assert (tmp_path / "disk" / "out" / "items" / "keys.npy").is_file()


def test_a_link_in_a_chain_that_is_kept(victim, folder, model):
    """A link on the path of a needed checkpoint is reported, but not followed."""
    saved = model.saver.save(model.session, str(folder / "m"), global_step=1)
    path = saved_files.manifest(saved)
    manifest = json.loads(path.read_text())
    (victim.path.parent / "manifest.json").write_text(json.dumps({**manifest, "chain": []}))
    path.unlink()
    path.symlink_to(victim.path.parent / "manifest.json")
    own(folder / "m-0.sok" / LEAF)
    retention.collect(saved)
    assert path.is_symlink() and saved_files.of(saved, "values.npy")


def test_raw_files_do_not_follow_links_of_their_names(victim, folder, model):
    dump = sok.Saver().dump_to_file(model.table, str(folder))
    for name in ("t_keys.file", "t_values.file", "t_keys.file.unfinished", "t_values.file.unfinished"):
        os.symlink(victim.path / "precious", folder / name)
    model.session.run(dump)
    assert sorted(path.name for path in folder.iterdir()) == ["t_keys.file", "t_values.file"]
    assert not any(path.is_symlink() for path in folder.iterdir())
