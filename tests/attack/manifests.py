"""Malicious manifests. The engine's reader and the one in Python must accept and refuse the same ones."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import hostile_manifests
import manifest_readers
from attack.scenario import Scenario

_MANIFESTS = 400


def _attempt(draw: random.Random, folder: Path) -> Counter:
    del folder
    good, bad = manifest_readers.compare([hostile_manifests.random_change(draw) for _ in range(_MANIFESTS)])
    return Counter({"read by both": good, "refused by both": bad})


SCENARIO = Scenario("manifests", "random changes of manifests, given to both readers", _attempt)
