"""Two processes that save to the same basename and folder, as if an old trainer ran beside its restart."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

import forked
import harness
import killed_training
from attack.scenario import Scenario

_SAVES = 8


def _trainer(draw: random.Random, directory: Path, first: int, told: int) -> None:
    """Trains and saves from step `first`; after each save, reports the checkpoints that it keeps."""
    with harness.graph_and_session() as session:
        model = killed_training.Model()
        harness.initialize(session)
        for step in range(first, first + _SAVES):
            session.run(model.train, {model.keys: killed_training.touched(step)})
            model.saver.save(session, str(directory / "model"), global_step=step + 1)
            os.write(told, json.dumps(model.saver.last_checkpoints).encode() + b"\n")
            time.sleep(draw.uniform(0, 0.05))


def _attempt(draw: random.Random, folder: Path) -> Counter:
    children = []
    for first in (0, draw.choice([1000, 2000])):
        receiver, sender = os.pipe()
        seed, pid = draw.random(), os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(receiver)
                _trainer(random.Random(seed), folder, first, sender)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(sender)
        children.append((pid, first, receiver))
    killed = draw.random() < 0.3
    if killed:
        time.sleep(draw.uniform(0.5, 3))
        os.kill(children[0][0], signal.SIGKILL)
    kept = []
    for pid, first, receiver in children:
        with os.fdopen(receiver) as lines:
            lists = [json.loads(line) for line in lines]
        status = forked.exit_code(os.waitpid(pid, 0)[1])
        ended_by_us = killed and pid == children[0][0] and status == -signal.SIGKILL
        assert status == 0 or ended_by_us, f"the trainer from step {first} ended with {status}"
        # A killed process may have removed the first checkpoints of its list for the next one.
        kept += [(path, first) for path in (lists[-1][-1:] if ended_by_us else lists[-1])] if lists else []
    _assert_restored(kept)
    return Counter({"checkpoints kept": len(kept), "trainers killed": int(killed)})


def _assert_restored(kept: list[tuple[str, int]]) -> None:
    """Checks that each checkpoint that was reported as saved has the state of its step."""
    with harness.graph_and_session() as session:
        model = killed_training.Model()
        for path, first in kept:
            model.saver.restore(session, path)
            step = int(path.rsplit("-", 1)[1])
            right = killed_training.expected(step) - killed_training.expected(first)
            for rows in session.run(model.rows, {model.keys: np.arange(killed_training.KEYS)}):
                np.testing.assert_array_equal(rows, right)


SCENARIO = Scenario("savers", "two trainings that save one basename into one folder", _attempt, 120)
