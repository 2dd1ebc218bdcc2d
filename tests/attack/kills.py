"""Kills processes while they save full or incremental checkpoints. The next process must restore exactly."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import killed_training
from attack.scenario import Scenario

_KILLS = 6


def _attempt(draw: random.Random, folder: Path) -> Counter:
    full_every = draw.choice([1, 3, 1000])
    step = killed_training.kill_again_and_again(str(folder), _KILLS, draw, full_every, longest=1.0)
    return Counter({"kills survived": _KILLS, "steps saved": step})


SCENARIO = Scenario("kills", "a training killed at any moment of its saves, and restored", _attempt, 240)
