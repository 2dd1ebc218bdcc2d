"""A directory of checkpoints: TensorFlow's files, one for each rank, and no folder."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import cli
from sparse_operation_kit.compat.internals import saveable_object
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
    meta = {"meta"} if write_meta_graph else set()
    suffixes = {name[len(os.path.basename(last)) + 1 :] for name in saved_files.files(last)}
    assert suffixes == meta | {"data-00000-of-00002", "data-00001-of-00002", "index"}
    deleted = {"deleted"} if kind == "incremental" else set()
    found = tf.train.load_checkpoint(last).get_variable_to_shape_map()
    arrays = {name.rpartition("/")[2] for name in found if name.startswith("scope/t#0/")}
    assert arrays == deleted | {"keys", "slot-accumulator", "values"}
    assert saved_files.counted_by(last) == ("incremental" if kind == "incremental" else "full")
    model.assert_restores(last, model.state())


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
    old, want = saved_files.files(prefix), model.state()
    model.go_on()
    session.run(broken.assign(True))
    with pytest.raises(tf.errors.InvalidArgumentError, match="broken"):
        saver.save(session, prefix)
    assert saved_files.files(prefix) == old
    newer = model.state()
    model.assert_restores(prefix, want)
    assert not np.array_equal(newer, want)
    session.run(broken.assign(False))
    saver.save(session, prefix)
    new = saved_files.files(prefix)
    assert len(new) == len(old) and set(new) & set(old) == {"m.index", "m.meta"}


def test_compaction_clears_what_a_killed_one_has_left_and_replaces_nothing(tmp_path, session):
    prefix = Model(session).saver.save(session, str(tmp_path / "m"))
    for file in (
        "sok-0123456789abcdef.new-index",
        "sok-0123456789abcdef.part-0.index",
        "data-00000-of-00001",
    ):
        (tmp_path / f"whole.{file}").touch()
    assert cli.main(["compact", prefix, "--to", str(tmp_path / "whole")]) == 0
    written = saved_files.files(tmp_path / "whole")
    assert len(written) == 2 or len(written) == 3, written
    assert not list(tmp_path.glob("*0123456789abcdef*"))
    assert cli.main(["compact", prefix, "--to", str(tmp_path / "whole")]) == 2
    assert saved_files.files(tmp_path / "whole") == written
