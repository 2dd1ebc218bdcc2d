"""What a scenario of an attack is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Scenario:
    """A kind of attack.

    Attributes:
      name: One word.
      what: What a try does, in some words.
      attempt: One try, in a process of its own that has imported TensorFlow and used nothing of it. Given
        random numbers and an empty folder, it returns how often it tried what, by outcome. An exception means
        that something was lost: rows, files of others, or an error that names what is wrong. So does the end
        of the process.
      seconds: After that a try counts as hanging, which is a loss too.
    """

    name: str
    what: str
    attempt: Callable[[random.Random, Path], Counter]
    seconds: float = 60.0
