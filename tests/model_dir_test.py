"""A directory of checkpoints: files beside TensorFlow's, no folder, and older folders as before."""

from __future__ import annotations

import os
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import cli, open_checkpoint, problems
from sparse_operation_kit.compat.internals import saveable_object
from sparse_operation_kit.saver import retention
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder

train = tf.compat.v1.train
KEYS = np.arange(8)


class Model:
    """A table of which `train` changes the rows of given keys, and a global step."""

    def __init__(self, session, **arguments):
        self.session = session
        self.keys = tf.compat.v1.placeholder(tf.int64, [None])
        self.table = sok.EmbeddingVariable("scope/t", dim=2)
        self.rows = tf.nn.embedding_lookup(self.table, self.keys)
        self.step = train.get_or_create_global_step()
        optimizer = train.AdagradOptimizer(0.1)
        self.train = optimizer.minimize(tf.reduce_sum(self.rows), global_step=self.step)
        self.saver = train.Saver(**arguments)
        harness.initialize(session)
        self.go_on()

    def go_on(self, keys=KEYS):
        self.session.run(self.train, {self.keys: keys})

    def state(self):
        return self.session.run(self.rows, {self.keys: KEYS})

    def assert_restores(self, prefix, want):
        self.go_on()
        self.saver.restore(self.session, str(prefix))
        np.testing.assert_array_equal(self.state(), want)


@pytest.fixture
def session():
    with harness.graph_and_session() as session:
        yield session


def exported_models(model_dir):
    """The exported models in a directory, as the programs of DeepRec's model zoo find them."""
    return [name for name in os.listdir(model_dir) if os.path.isdir(os.path.join(model_dir, name))]


SAVERS = {
    "one file": {},
    "sharded": {"sharded": True},
    "incremental": {"sharded": True, "builder": IncrementalBuilder},
}


@pytest.mark.parametrize("kind", SAVERS)
@pytest.mark.parametrize("write_meta_graph", [True, False])
def test_a_save_makes_no_folder(tmp_path, session, kind, write_meta_graph):
    arguments = dict(SAVERS[kind])
    builder = arguments.pop("builder", None)
    model = Model(session, max_to_keep=2, **arguments, **({"builder": builder()} if builder else {}))
    for _ in range(3):
        model.go_on()
        last = model.saver.save(
            session, str(tmp_path / "model.ckpt"), global_step=model.step, write_meta_graph=write_meta_graph
        )
        assert exported_models(tmp_path) == []
    start = re.escape(os.path.basename(last)) + r"\.sok-scope%2Ft-[0-9a-f]{16}\."
    own = sorted(os.listdir(tmp_path))
    own = [name for name in own if name.startswith(os.path.basename(last) + ".sok")]
    own.remove(f"{os.path.basename(last)}.sok-{'incremental' if kind == 'incremental' else 'full'}")
    found = {re.fullmatch(start + "(.+)", name).group(1) for name in own}
    deleted = {"shard-00000.deleted.npy"} if kind == "incremental" else set()
    assert found == deleted | {
        "manifest.json",
        "shard-00000.keys.npy",
        "shard-00000.slot-accumulator.npy",
        "shard-00000.values.npy",
    }
    assert os.path.exists(f"{last}.meta") == write_meta_graph
    model.assert_restores(last, model.state())


def test_max_to_keep_removes_all_files(tmp_path, session):
    model = Model(session, max_to_keep=2)
    for _ in range(4):
        model.go_on()
        model.saver.save(session, str(tmp_path / "m"), global_step=model.step)
    kept = {os.path.basename(path) for path in model.saver.last_checkpoints}
    assert {name.split(".")[0] for name in os.listdir(tmp_path)} == kept | {"checkpoint"}


def test_a_copied_directory_has_the_tables(tmp_path, session):
    model = Model(session)
    (tmp_path / "from").mkdir()
    model.saver.save(session, str(tmp_path / "from" / "m"), global_step=1)
    want = model.state()
    (tmp_path / "to").mkdir()
    for path in (tmp_path / "from").iterdir():
        shutil.copy(path, tmp_path / "to")
    shutil.rmtree(tmp_path / "from")
    model.assert_restores(tmp_path / "to" / "m-1", want)


class Breaks(saveable_object.SaveableObject):
    """Makes TensorFlow's part of a save fail while the variable `broken` is true."""

    def __init__(self, broken):
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(broken), ["broken"])]):
            value = tf.constant(0.0)
        super().__init__(value, [saveable_object.SaveSpec(value, "", "breaks")], "breaks")

    def restore(self, restored_tensors, restored_shapes):
        return tf.no_op()


def test_a_save_over_a_checkpoint_that_fails_leaves_the_old_one(tmp_path, session):
    model = Model(session)
    broken = tf.compat.v1.get_variable("broken", initializer=False, trainable=False)
    session.run(broken.initializer)
    saver = train.Saver([*tf.compat.v1.global_variables(), Breaks(broken)])
    prefix = saver.save(session, str(tmp_path / "m"))
    old, want = saved_files.of(prefix), model.state()
    model.go_on()
    session.run(broken.assign(True))
    with pytest.raises(tf.errors.InvalidArgumentError, match="broken"):
        saver.save(session, prefix)
    assert saved_files.of(prefix) == old
    newer = model.state()
    model.assert_restores(prefix, want)
    assert not np.array_equal(newer, want)
    session.run(broken.assign(False))
    saver.save(session, prefix)
    assert len(saved_files.of(prefix)) == len(old) and not set(saved_files.of(prefix)) & set(old)


@pytest.mark.parametrize("incremental", [False, True])
def test_training_goes_on_from_folders_of_earlier_versions(tmp_path, session, incremental):
    builder = {"builder": IncrementalBuilder()} if incremental else {}
    model = Model(session, max_to_keep=3, **builder)
    first = model.saver.save(session, str(tmp_path / "m"), global_step=1)
    states = [model.state()]
    folder = saved_files.move_into_folder(first)
    assert exported_models(tmp_path) == [folder.name]
    for step in (2, 3):
        model.go_on(KEYS[:3])
        model.saver.save(session, str(tmp_path / "m"), global_step=step)
        states.append(model.state())
    for step, want in enumerate(states, 1):
        model.assert_restores(tmp_path / f"m-{step}", want)
        checkpoint = open_checkpoint(tmp_path / f"m-{step}")
        assert list(problems(checkpoint)) == []
        assert len(checkpoint.tables[0].open().links) == (step if incremental else 1)
    assert cli.main(["compact", str(tmp_path / "m-3"), "--to", str(tmp_path / "whole")]) == 0
    model.assert_restores(tmp_path / "whole", states[-1])
    for step in (4, 5, 6, 7):
        model.saver.save(session, str(tmp_path / "m"), global_step=step)
    assert exported_models(tmp_path) == []
    # A restored table has no changes since a checkpoint: "m-4" is a full one, on which the others build.
    base = ["m-4"] if incremental else []
    assert saved_files.bases(tmp_path) == [*base, "m-5", "m-6", "m-7", "whole"]


def test_a_checkpoint_replaces_an_older_folder_of_its_name(tmp_path, session):
    model = Model(session)
    prefix = model.saver.save(session, str(tmp_path / "m"))
    saved_files.move_into_folder(prefix)
    model.go_on()
    model.saver.save(session, prefix)
    assert exported_models(tmp_path) == []
    model.assert_restores(prefix, model.state())


def test_compaction_clears_what_a_killed_one_has_left_and_replaces_no_table(tmp_path, session):
    prefix = Model(session).saver.save(session, str(tmp_path / "m"))
    for file in ("shard-00000.keys.npy", "manifest.json.unfinished"):
        (tmp_path / f"whole.sok-t-0123456789abcdef.{file}").touch()
    assert cli.main(["compact", prefix, "--to", str(tmp_path / "whole")]) == 0
    written = saved_files.of(tmp_path / "whole")
    assert not list(tmp_path.glob("*0123456789abcdef*"))
    (tmp_path / "whole.index").unlink()
    assert cli.main(["compact", prefix, "--to", str(tmp_path / "whole")]) == 2
    assert saved_files.of(tmp_path / "whole") == written


def test_prefixes_that_look_like_a_tables_file(tmp_path, session):
    """Neither the tables of "m" nor those of "m.sok-t-…" are taken for the other's."""
    model = Model(session)
    other = str(tmp_path / "m.sok-t-0123456789abcdef")
    for prefix in (other, str(tmp_path / "m"), other):
        model.go_on()
        model.saver.save(session, prefix)
    for prefix in (other, str(tmp_path / "m")):
        assert cli.main(["verify", prefix]) == 0
    retention.collect(str(tmp_path / "m"))
    model.assert_restores(other, model.state())


def test_each_file_of_a_table_names_it(tmp_path, session):
    prefix = Model(session).saver.save(session, str(tmp_path / "m"))
    for path in saved_files.of(prefix):
        assert [entry.name for entry in open_checkpoint(path).tables] == ["scope/t"]
    assert [entry.name for entry in open_checkpoint(f"{prefix}.sok").tables] == ["scope/t"]
    start = pathlib.Path(str(saved_files.manifest(prefix))[: -len(".manifest.json")])
    assert [entry.name for entry in open_checkpoint(start).tables] == ["scope/t"]
