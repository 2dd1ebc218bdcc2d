"""A process that is one of several ranks is refused, instead of training tables of its own."""

import sys
import types

import pytest
import tensorflow as tf

import harness  # noqa: F401 - fixes TensorFlow's log level
import sparse_operation_kit as sok


@pytest.fixture(autouse=True)
def _fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE"])
def test_several_processes_of_a_launcher(variable, monkeypatch):
    monkeypatch.setenv(variable, "3")
    with pytest.raises(RuntimeError, match="one of 3 ranks"):
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)


def test_one_process_of_a_launcher(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)


@pytest.mark.parametrize("size", [1, 2])
def test_horovod_knows_better_than_the_environment(size, monkeypatch):
    horovod = types.SimpleNamespace(is_initialized=lambda: True, size=lambda: size)
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", horovod)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    if size == 1:
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
    else:
        with pytest.raises(RuntimeError, match="one of 2 ranks"):
            sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
