"""What any version of TensorFlow has saved is restored by this one: `tests/versions` has files of several."""

import pathlib

import numpy as np
import pytest

import harness
from version_model import Model, write

_FOLDERS = sorted(path for path in pathlib.Path(__file__).parent.joinpath("versions").iterdir())


@pytest.fixture(params=_FOLDERS, ids=lambda folder: folder.name)
def folder(request):
    """The folder of a version's files."""
    return request.param


def _check(found, folder, name, tolerance):
    with np.load(folder / name) as expected:
        assert sorted(found) == sorted(expected.files)
        for array in expected.files:
            np.testing.assert_allclose(found[array], expected[array], rtol=tolerance, err_msg=array)


def test_there_are_files_of_old_and_new_versions():
    assert {folder.name.split(".")[0] for folder in _FOLDERS} >= {"1", "2"}


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
