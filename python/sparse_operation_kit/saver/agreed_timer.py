"""Makes a CheckpointSaverHook with `save_secs` save at the same step on all ranks.

Ranks save together, but their clocks differ, so rank 0's clock decides. At agreed steps rank 0 tells all
ranks whether to save, and at which step to ask again.
"""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.ranks.agreement import agree
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver import checkpoint_save
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable

# The maximum number of steps between two checks of rank 0's clock.
_MOST_STEPS = 1000
_HOOK = "tensorflow.python.training.basic_session_run_hooks.CheckpointSaverHook"


class AgreedTimer:
    """A timer of `CheckpointSaverHook` that checks rank 0's clock. All ranks call `look` at the same steps.

    Attributes:
      next_look: the first step at which to call `look` again.
    """

    def __init__(self, every_secs: float, exchange: tuple[tf.Tensor, tf.Tensor]) -> None:
        """Creates the timer; `exchange` is the result of `make_exchange`."""
        self.next_look = 0
        self._every_secs = every_secs
        self._words, self._of_first_rank = exchange
        self._triggered: tuple[int, float] | None = None
        self._looked: tuple[int, float] | None = None

    def look(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Returns whether to save at `step`; the result is the same on all ranks."""
        if step < self.next_look or step == self.last_triggered_step():
            return False
        due, self.next_look = session.run(self._of_first_rank, {self._words: self._decide(step)}).tolist()
        return bool(due)

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Records a save, and returns the seconds and steps since the last one, as TensorFlow's timers do."""
        now = time.time()
        before, self._triggered = self._triggered, (step, now)
        return (None, None) if before is None else (now - before[1], step - before[0])

    def last_triggered_step(self) -> int | None:
        """Returns the step of the last save, None if there was none."""
        return None if self._triggered is None else self._triggered[0]

    def _decide(self, step: int) -> list[int]:
        """Returns [1 to save or 0, the step of the next look]. Only rank 0's result is used."""
        now = time.time()
        before, self._looked = self._looked, (step, now)
        since = now if self._triggered is None else self._triggered[1]
        due = self._triggered is None or now >= since + self._every_secs
        left = self._every_secs if due else since + self._every_secs - now
        steps = 1
        if before is not None and now > before[1]:
            steps = int(left * (step - before[0]) / (now - before[1]))
        return [int(due), step + min(max(steps, 1), _MOST_STEPS)]


def make_exchange() -> tuple[tf.Tensor, tf.Tensor]:
    """Adds the exchange of an `AgreedTimer` to the default graph.

    Returns:
      Two int64 tensors `[2]`: the placeholder for this rank's decision, and rank 0's decision on all ranks.
    """
    words = tf.compat.v1.placeholder(tf.int64, [2], name="due_and_next_look")
    return words, agree(words, "whether it is time for a checkpoint")[0]


def use_agreed_timer(hook: Any, graph: tf.Graph) -> None:
    """Makes a hook use rank 0's clock instead of this rank's, if its Saver has tables."""
    seconds = getattr(hook._timer, "_every_secs", None)
    exchange = getattr(hook, "_sok_exchange", None)
    if seconds is None or exchange is None or isinstance(hook._timer, AgreedTimer):
        return
    if checkpoint_save.has_tables(hook._get_saver(), graph):
        hook._timer = AgreedTimer(seconds, exchange)


@replacements.wraps(f"{_HOOK}.begin")
def _with_exchange(original, self):
    """Runs before the graph is finalized."""
    original(self)
    has_tables = any(map(is_embedding_variable, tf.compat.v1.global_variables()))
    by_time = getattr(self._timer, "_every_secs", None) is not None
    if communicator().size > 1 and by_time and has_tables:
        self._sok_exchange = make_exchange()


@replacements.wraps(f"{_HOOK}.after_create_session")
def _with_agreed_timer(original, self, session, coord):
    """Runs after Savers are built."""
    use_agreed_timer(self, session.graph)
    return original(self, session, coord)


@replacements.wraps(f"{_HOOK}.after_run")
def _saving_when_agreed(original, self, run_context, run_values):
    timer = self._timer
    if not isinstance(timer, AgreedTimer):
        return original(self, run_context, run_values)
    # The fetched global step may be from before the run on one rank and from after it on another.
    if run_values.results + self._steps_per_run < timer.next_look:
        return None
    step = run_context.session.run(self._global_step_tensor)
    if timer.look(run_context.session, step):
        timer.update_last_triggered_step(step)
        if self._save(run_context.session, step):
            run_context.request_stop()
    return None
