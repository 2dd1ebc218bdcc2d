"""What is done while calls fail, and what must hold afterwards."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import tensorflow as tf

from failing_calls.shim import Failure
from failing_calls.training import Reference, Training
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.saver import checkpoint_save

# Errors that callers may see. Any other is a mistake.
ERRORS = (tf.errors.OpError, OSError, CheckpointError)
# What a save, a dump or an export has while it runs. No lock protects TensorFlow's own list of checkpoints,
# so nobody can remove what was left of one.
_UNFINISHED = re.compile(
    r"(?!checkpoint\.tmp).*(\.lock|\.sok-[0-9a-f]{16}.*|\.tempstate.*|\.tmp.*|unfinished|\.replaced|_temp.*)"
)


class Scenario:
    """Something that is done in a folder, which goes on after each failure.

    The lane calls `start`, and then `prepare`, `act` (within which calls fail) and `check` over and over.
    After a kill, it calls `start` and `recover` in a new process. All raise AssertionError for what must not
    happen.

    Attributes:
      name: A short name.
      of_memory: Whether allocations and threads of the op library fail, instead of calls about files.
      failure: What has failed in `act`, for `check`.
      failed_path: The file of the last call that failed, or "".
      reference: The right states.
      kills: Whether `act` changes files, so that a process that ends within it matters.
    """

    name: str
    kills = True
    of_memory = False
    failure: Failure | None = None
    failed_path = ""

    def __init__(self, folder: Path) -> None:
        """Builds graphs, and runs nothing: the process will be forked."""
        # A lock that is left would be waited for.
        checkpoint_save._PATIENCE_SECONDS = 0
        self.folder = folder
        self.reference = Reference()

    def start(self) -> None:
        """Begins sessions, and makes the first files, or goes on from those that a killed process left."""

    def prepare(self) -> None:
        """Makes everything ready for `act`."""

    def act(self) -> None:
        """What is tested."""
        raise NotImplementedError

    def check(self, error: Exception | None) -> None:
        """Checks what must hold after `act`, which raised `error`, or returned."""
        raise NotImplementedError

    def recover(self) -> None:
        """Checks what must hold in a new process after that of `act` was killed, and removes its files."""
        raise NotImplementedError

    def check_error(self, error: Exception, *names: str) -> None:
        """Checks that an error is of a kind that callers expect, and names a file and all of `names`."""
        assert isinstance(error, ERRORS), f"a {type(error).__name__}"
        text = self.reason(error)
        assert str(self.folder) in text, f"no file is named: {text[:500]}"
        for name in names:
            assert name in text, f"'{name}' is not named: {text[:500]}"

    def reason(self, error: Exception) -> str:
        """Returns an error's text, without the places in the program that TensorFlow adds."""
        text = re.sub(r"(?s)^.*?\nNode: [^\n]*\n", "", str(error))
        return re.sub(r"(?s)\n\t \[\[.*", "", text)

    def check_synced(self, error: Exception | None) -> None:
        """Checks that what could not be synced was an error: a power failure may lose it."""
        assert error is not None or self.failure is None or self.failure.kinds != "sync", "not synced"

    def check_nothing_left(self) -> None:
        """Checks that the folder has nothing of what runs or was killed."""
        left = [name for name in self.names() if _UNFINISHED.fullmatch(name)]
        assert not left, f"left: {left}"

    def names(self) -> list[str]:
        """Returns the paths below the folder."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def open_files(self) -> list[str]:
        """Returns the paths below the folder of which this process holds a descriptor."""
        found = []
        for number in os.listdir("/proc/self/fd"):
            try:
                path = os.readlink(f"/proc/self/fd/{number}")
            except OSError:
                continue
            # TensorFlow keeps its summaries open.
            if path.startswith(str(self.folder)) and "tfevents" not in path:
                found.append(path)
        return sorted(found)


class Trains(Scenario):
    """Something that is done with a training.

    Attributes:
      training: The training.
      default_graph: Its graph, which is the default from `start` on, to the end of the process.
    """

    # The step that is saved at first.
    saved = 3

    def __init__(self, folder: Path, **options: Any) -> None:
        """Builds the training, with options of its own."""
        super().__init__(folder)
        self.training = Training(**options)
        self.default_graph = self.training.graph.as_default()

    def start(self) -> None:
        """Begins the training."""
        self.default_graph.__enter__()
        self.training.initialize()
