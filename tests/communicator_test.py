"""The ranks that a process belongs to: Horovod's, its launcher's, or only itself."""

import sys
import types

import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import native
from sparse_operation_kit.ranks import communicator as module
from sparse_operation_kit.ranks.communicator import communicator


@pytest.fixture(autouse=True)
def undecided_process(monkeypatch):
    """Each test starts like a single process that has not used the library yet."""
    monkeypatch.delitem(sys.modules, "horovod.tensorflow", raising=False)
    for variable in module._LAUNCHER_SIZES:
        monkeypatch.delenv(variable, raising=False)
    module._reset()
    with tf.Graph().as_default():
        yield
    module._reset()


def horovod(monkeypatch, size, rank=0, initialized=True):
    """Replaces the installed Horovod by one with the given ranks."""
    fake = types.ModuleType("horovod.tensorflow")
    state = {"initialized": initialized}
    fake.is_initialized = lambda: state["initialized"]
    fake.init = lambda: state.update(initialized=True)
    fake.shutdown = lambda: state.update(initialized=False)
    fake.size = lambda: size
    fake.rank = lambda: rank
    monkeypatch.setitem(sys.modules, "horovod", types.SimpleNamespace(tensorflow=fake))
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", fake)
    monkeypatch.setattr(native, "horovod_ops", lambda: None)
    return fake


def test_a_process_by_itself_is_one_rank():
    known = communicator()
    assert (known.rank, known.size) == (0, 1)
    assert communicator() is known


def test_one_rank_receives_what_it_sends():
    known = communicator()
    words, splits = tf.constant([1, 2, 3], tf.int64), tf.constant([2], tf.int32)
    scalar = tf.constant(2.0)
    with tf.compat.v1.Session() as session:
        received, lengths = session.run(known.exchange(words, splits, "x"))
        assert received.tolist() == [1, 2] and lengths.tolist() == [2]
        assert session.run(known.all(scalar > 1, "x")) and not session.run(known.all(scalar > 2, "x"))
    assert known.allreduce(scalar, average=True, name="x") is scalar
    assert known.allgather(words, "x") is words
    assert known.broadcast(words, 0, "x") is words
    with pytest.raises(ValueError, match="Rank 1 is not one of the 1 ranks"):
        known.broadcast(words, 1, "x")


@pytest.mark.parametrize("variable", ["HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_one_process_of_a_launcher(variable, monkeypatch):
    monkeypatch.setenv(variable, "1")
    assert communicator().size == 1


@pytest.mark.parametrize(
    ("variable", "launcher"), [("OMPI_COMM_WORLD_SIZE", "mpirun"), ("HOROVOD_SIZE", "horovodrun")]
)
def test_several_processes_without_horovod(variable, launcher, monkeypatch):
    def missing():
        raise ImportError("More than one rank needs Horovod")

    monkeypatch.setattr(native, "horovod_ops", missing)
    monkeypatch.setenv(variable, "3")
    message = rf"one of 3 that {launcher} \({variable}=3\) started. More than one rank needs Horovod"
    with pytest.raises(RuntimeError, match=message):
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)


def test_several_processes_that_do_not_find_each_other(monkeypatch):
    horovod(monkeypatch, size=1, initialized=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    with pytest.raises(RuntimeError, match="one of 3 that mpirun.*Horovod found 1"):
        communicator()


def test_a_launched_process_initializes_horovod(monkeypatch):
    fake = horovod(monkeypatch, size=3, rank=2, initialized=False)
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    known = communicator()
    assert fake.is_initialized()
    assert (known.rank, known.size) == (2, 3)


def test_initialized_horovod_overrides_the_environment(monkeypatch):
    horovod(monkeypatch, size=1)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    assert communicator().size == 1
    module._reset()
    horovod(monkeypatch, size=2, rank=1)
    assert (communicator().rank, communicator().size) == (1, 2)


def test_horovod_that_is_not_initialized_is_ignored(monkeypatch):
    horovod(monkeypatch, size=2, initialized=False)
    assert communicator().size == 1


def test_horovod_initialized_too_late_is_an_error(monkeypatch):
    communicator()
    horovod(monkeypatch, size=2, rank=1)
    with pytest.raises(RuntimeError, match=r"rank 1 of 2.*rank 0 of 1.*hvd.init\(\) before sok.Init"):
        communicator()


def test_horovod_of_one_rank_may_come_later(monkeypatch):
    known = communicator()
    horovod(monkeypatch, size=1)
    assert communicator() is known


def test_ranks_without_horovod_are_an_error(monkeypatch):
    fake = horovod(monkeypatch, size=2)
    communicator()
    fake.shutdown()
    with pytest.raises(RuntimeError, match="shut down, but its 2 ranks"):
        communicator()
