"""The launcher of tests over ranks (ranks.py): results, outputs, failures and hangs of ranks."""

import os
import signal
import time

import pytest

import ranks


def _rank():
    import horovod.tensorflow as hvd

    hvd.init()
    return hvd.rank(), hvd.size()


def _rank_times(factor):
    return _rank()[0] * factor


def _check_rank():
    return _rank()[0]


def _check_size():
    return _rank()[1]


def _fail_on_the_last(way):
    rank, size = _rank()
    print(f"rank {rank} is here", flush=True)
    if rank != size - 1:
        time.sleep(60 if way == "hang" else 0)
    elif way == "raise":
        raise ValueError("a reason")
    elif way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("transport", "size"), [("gloo", 3), ("mpi", 2), ("horovodrun", 2)])
def test_results_come_by_rank(transport, size):
    assert ranks.run(_rank_times, 5, ranks=size, transport=transport) == [5 * i for i in range(size)]


def test_checks_share_a_launch():
    results = ranks.run_checks([_check_rank, _check_size], ranks=2)
    assert results == {"_check_rank": [0, 1], "_check_size": [2, 2]}


@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_an_exception_on_a_rank_fails_with_its_output(transport):
    with pytest.raises(AssertionError, match="ValueError: a reason"):
        ranks.run(_fail_on_the_last, "raise", ranks=2, transport=transport)


def test_a_killed_rank_is_reported():
    job = ranks.launch(_fail_on_the_last, "kill", ranks=2)
    assert job.returncodes == [0, -signal.SIGKILL]
    assert job.returncode == -signal.SIGKILL and not job.timed_out
    assert "rank 1 is here" in job.outputs[1]


@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_a_hang_is_killed_with_stacks(transport):
    job = ranks.launch(_fail_on_the_last, "hang", ranks=2, transport=transport, timeout=10)
    assert job.timed_out
    assert "_fail_on_the_last" in job.outputs[0]


def test_a_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nprint(os.environ['HOROVOD_RANK'], os.environ['WORD'], sys.argv[1:])\n"
    )
    job = ranks.launch(program, "a", "b", ranks=2, env={"WORD": "hello"})
    assert job.returncode == 0
    assert job.outputs == ["0 hello ['a', 'b']\n", "1 hello ['a', 'b']\n"]
