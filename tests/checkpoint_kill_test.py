"""A training process that is killed at any point of a save leaves a checkpoint that restores exactly.

SOK_TEST_KILLS and SOK_TEST_RANK_KILLS set how often processes are killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading

import pytest

import forked
import harness
import killed_training
import ranks
import saved_files
from sparse_operation_kit.ranks.communicator import communicator

KILLS = int(os.environ.get("SOK_TEST_KILLS", "12"))
RANK_KILLS = int(os.environ.get("SOK_TEST_RANK_KILLS", "4"))


@pytest.mark.parametrize("full_every", [1, 4])
def test_one_process(tmp_path, full_every):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    arguments = f"{str(tmp_path)!r}, {KILLS}, random.Random(2), {full_every}"
    code = f"import random; from killed_training import *; print('steps', kill_again_and_again({arguments}))"
    result = forked.run_code(code, env=environment, timeout=60 + 20 * KILLS)
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    steps = int(result.stdout.split("steps")[-1])
    assert steps > KILLS // 4
    # The next save removes the leftovers of killed saves. Those of at most two can be left after that: of one
    # whose removal was interrupted, and of the last killed save.
    with_tables = set(saved_files.bases(tmp_path))
    checkpoints = {path.stem for path in tmp_path.glob("*.index") if ".sok-" not in path.stem}
    assert checkpoints <= with_tables
    if full_every == 1:
        assert len(with_tables - checkpoints) <= 2


def _run_rank(directory: str, seed: int) -> int:
    known = communicator()
    with harness.graph_and_session() as session:
        model = killed_training.Model()
        step = model.restore(session, directory)
        print(f"restored {step}", flush=True)
        if seed < 0:
            return step
        draw = random.Random(seed * 100)
        moment = draw.uniform(0.2, 1.5)
        # Ranks are killed at different times: what the others do meanwhile must do no harm.
        delay = moment + random.Random(seed * 100 + known.rank + 1).uniform(0, 0.2)
        threading.Timer(delay, os.kill, [os.getpid(), signal.SIGKILL]).start()
        model.go_on(session, directory, step)
        return step


def test_two_ranks(tmp_path):
    directory = str(tmp_path)
    for seed in range(RANK_KILLS):
        job = ranks.launch(_run_rank, directory, seed, ranks=2)
        assert all("restored" in output for output in job.outputs), job.report()
        assert -signal.SIGKILL in job.returncodes and not job.timed_out, job.report()
    steps = ranks.run(_run_rank, directory, -1, ranks=2)
    assert steps[0] == steps[1] > 0
