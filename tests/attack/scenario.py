"""Scenarios of attacks."""

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
      what: A short description of a try.
      attempt: Runs one try, in its own process that has imported TensorFlow, but not used it. Takes a random
        number generator and an empty folder, and returns counts of outcomes. An exception or the end of the
        process means a loss: of rows, of others' files, or of an error message.
      seconds: A try that takes longer counts as hanging, which is a loss too.
    """

    name: str
    what: str
    attempt: Callable[[random.Random, Path], Counter]
    seconds: float = 60.0
