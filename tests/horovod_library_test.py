# Not on GPUs: graphs, names and libraries
"""The errors of `native.horovod_ops()` if Horovod or the library built with it is missing or does not fit."""

import sys

import horovod
import horovod.tensorflow as hvd
import pytest

from sparse_operation_kit import native


@pytest.fixture(autouse=True)
def _fresh():
    native.horovod_ops.cache_clear()
    yield
    native.horovod_ops.cache_clear()


def test_the_library_is_loaded_once_and_needs_no_initialization():
    ops = native.horovod_ops()
    assert ops is native.horovod_ops()
    assert callable(ops.sok_exchange) and not hvd.is_initialized()


def test_without_horovod(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", None)
    with pytest.raises(
        ImportError, match=r"needs Horovod 0\.28\.1 .* `tools/setup\.sh --horovod` installs it"
    ):
        native.horovod_ops()


def test_another_horovod(monkeypatch):
    monkeypatch.setattr(horovod, "__version__", "0.27.0")
    with pytest.raises(ImportError, match=r"Horovod is 0\.27\.0; sok_horovod\.so works with 0\.28\.1"):
        native.horovod_ops()


def test_a_horovod_for_gpus(monkeypatch):
    # Loading both libraries into one process would register their ops twice.
    monkeypatch.setattr(native, "_load", lambda library: library)
    assert native.horovod_ops() == "sok_horovod.so"
    native.horovod_ops.cache_clear()
    monkeypatch.setattr(hvd, "cuda_built", lambda: True)
    assert native.horovod_ops() == "sok_horovod_gpu.so"
    native.horovod_ops.cache_clear()
    monkeypatch.setattr(hvd, "rocm_built", lambda: True)
    with pytest.raises(ImportError, match="built for ROCm"):
        native.horovod_ops()


def test_a_package_built_without_horovod(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "_candidates", lambda library: [str(tmp_path / library)])
    with pytest.raises(
        ImportError, match=r"sok_horovod\.so is not built.*--horovod && bazel build //sok_ops:sok_horovod\.so"
    ):
        native.horovod_ops()
