# Tags: versions, old_version
# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""What any version of TensorFlow has saved is restored by this one: `tests/versions` has archives of several.

tools/python.sh tests/versions_test.py tests/versions/VERSION
  writes VERSION.tar.gz: a checkpoint of this version, raw files, and the rows a step later
"""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok

v1 = tf.compat.v1
KEYS = np.concatenate([harness.HOSTILE_KEYS, np.arange(100, 116) * 2**33]).astype(np.int64)
_ARCHIVES = sorted(pathlib.Path(__file__).parent.joinpath("versions").iterdir())


class Model:
    """Two tables and an ordinary variable. Exact Adam also moves the rows that a step does not touch."""

    def __init__(self) -> None:
        """Builds the graph in the default one."""
        self.ids = v1.placeholder(tf.int64, [None])
        self.tables = [
            sok.EmbeddingVariable("users", 3, initializer=tf.keras.initializers.Constant(0.5)),
            sok.EmbeddingVariable("items", 5, capacity=40),
        ]
        self.kernel = v1.get_variable("kernel", [8, 1], initializer=v1.constant_initializer(0.25))
        rows = tf.concat([tf.nn.embedding_lookup(table, self.ids) for table in self.tables], axis=1)
        loss = tf.reduce_sum(tf.square(tf.matmul(rows, self.kernel) - 1.0))
        step = v1.train.get_or_create_global_step()
        self.train = sok.optimizers.Adam(0.05).minimize(loss, global_step=step)
        self.saver = v1.train.Saver()
        self._raw = sok.Saver()

    def step(self, session: v1.Session, number: int) -> None:
        """Trains on the batch of this number."""
        batch = np.random.RandomState(number).choice(KEYS, 12)
        session.run(self.train, {self.ids: batch})

    def state(self, session: v1.Session) -> dict[str, np.ndarray]:
        """The tables' keys and rows, by ascending key, and the ordinary variable."""
        found = {"kernel": session.run(self.kernel)}
        for table, (keys, rows) in zip(self.tables, harness.contents_of_tables(session, self.tables)):
            order = np.argsort(keys)
            found[f"{table.m_var_name}_keys"] = keys[order]
            found[f"{table.m_var_name}_rows"] = rows[order]
        return found

    def dump(self, session: v1.Session, folder: pathlib.Path) -> None:
        """Writes raw files."""
        with session.graph.as_default():
            for table in self.tables:
                session.run(self._raw.dump_to_file(table, str(folder)))

    def restore_raw(self, session: v1.Session, folder: pathlib.Path) -> None:
        """Reads raw files."""
        with session.graph.as_default():
            for table in self.tables:
                session.run(self._raw.restore_from_file(table, str(folder)))


def write(folder: pathlib.Path) -> None:
    """Writes the files."""
    folder.mkdir(parents=True)
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        for number in range(3):
            model.step(session, number)
        model.saver.save(session, str(folder / "model"), write_meta_graph=False, write_state=False)
        model.dump(session, folder)
        np.savez(folder / "saved.npz", **model.state(session))
        model.step(session, 3)
        np.savez(folder / "a_step_later.npz", **model.state(session))


@pytest.fixture(params=_ARCHIVES, ids=lambda archive: archive.name)
def folder(request, tmp_path):
    """The folder of a version's files."""
    shutil.unpack_archive(str(request.param), str(tmp_path / "read"))
    return tmp_path / "read"


def _check(found, folder, name, tolerance):
    with np.load(folder / name) as expected:
        assert sorted(found) == sorted(expected.files)
        for array in expected.files:
            np.testing.assert_allclose(found[array], expected[array], rtol=tolerance, err_msg=array)


def test_there_are_files_of_old_and_new_versions():
    assert {archive.name.split(".")[0] for archive in _ARCHIVES} >= {"1", "2"}


def test_a_checkpoint_is_restored_and_training_goes_on(folder):
    with harness.graph_and_session() as session:
        model = Model()
        model.saver.restore(session, str(folder / "model"))
        _check(model.state(session), folder, "saved.npz", 0)
        model.step(session, 3)
        # TensorFlow's own kernels, of the ordinary variable, differ in the last bits.
        _check(model.state(session), folder, "a_step_later.npz", 1e-5)


def test_raw_files_are_restored(folder):
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        model.restore_raw(session, folder)
        found = model.state(session)
    with np.load(folder / "saved.npz") as expected:
        for array in expected.files:
            if array != "kernel":
                np.testing.assert_array_equal(found[array], expected[array])


def test_this_version_writes_the_same(tmp_path, folder):
    write(tmp_path / "written")
    with np.load(tmp_path / "written" / "saved.npz") as found:
        _check({array: found[array] for array in found.files}, folder, "saved.npz", 1e-5)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        write(pathlib.Path(name) / "files")
        shutil.make_archive(sys.argv[1], "gztar", str(pathlib.Path(name) / "files"))
