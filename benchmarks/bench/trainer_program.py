"""One run of examples/train_ctr.py, a number of steps at a time: a program as in processes.py.

`python -m bench.trainer_program TABLES [FLAG_OF_TRAIN_CTR]...`, where TABLES is sok, tensorflow, or "no
tables" for constant embeddings without lookups or table updates. It answers the lines

    0 step <steps>   with the wall time and processor time of a step, in milliseconds
    0 batch 0        with the number of samples in a step

As in train_ctr.py's samples per second, evaluations do not count. The work before an epoch's first step
counts in processor time, but not in wall time.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

import tensorflow as tf

from ctr.app import make_tables, training_settings
from ctr.bad_lines import BadLines
from ctr.datasets import make_dataset
from ctr.flags import parse_flags
from ctr.history import History
from ctr.ranks import Ranks
from ctr.report import Progress
from ctr.tables import Tables, make_stock_optimizer
from ctr.training import Trainer


class _End(Exception):
    """The input has ended."""


class NoTables(Tables):
    """Embeddings that are the same for all ids. Their gradients are computed, but not used."""

    def __init__(self) -> None:
        self._embeddings: list[tf.Tensor] = []

    def prepare(self, session: tf.compat.v1.Session) -> None:
        """See Tables.prepare."""

    def one_hot(self, name: str, ids: tf.Tensor, dim: int, training: tf.Tensor) -> tf.Tensor:
        """See Tables.one_hot."""
        del name, training
        self._embeddings.append(tf.fill([tf.shape(ids)[0], ids.shape[1], dim], 0.01))
        return self._embeddings[-1]

    def multi_hot(
        self, name: str, ids: tf.Tensor, present: tf.Tensor, dim: int, training: tf.Tensor
    ) -> tf.Tensor:
        """See Tables.multi_hot."""
        return self.one_hot(name, ids, dim, training)

    def train(self, loss: tf.Tensor, optimizer: str, learning_rate: float) -> tf.Operation:
        """See Tables.train."""
        weights = tf.compat.v1.trainable_variables()
        gradients = tf.gradients(loss, [*self._embeddings, *weights])
        count = len(self._embeddings)
        update = make_stock_optimizer(optimizer, learning_rate).apply_gradients(
            list(zip(gradients[count:], weights))
        )
        # An op that takes the gradients without reading them. TensorFlow does not remove it, so that it
        # computes them.
        taken = tf.raw_ops.Assert(condition=tf.size(gradients[0]) >= 0, data=gradients[:count])
        return tf.group(update, taken)

    def broadcast(self) -> tf.Operation:
        """See Tables.broadcast."""
        return tf.no_op()


class _Turns:
    """Answers lines between the steps of a run."""

    def __init__(self, answers: TextIO, batch: int) -> None:
        self._answers = answers
        self._batch = batch
        self._seen = 0
        self._last = 0  # the number of the step at which the turn ends
        self._begin = (0.0, 0.0, 0)
        self._since_step = 0.0  # processor time at the last step
        self._evaluating = 0.0  # processor time of evaluations in this turn

    def watch(self, history: History) -> None:
        """Call after each step and evaluation. At the end of a turn, answers lines until the next begins."""
        steps = len(history.losses)
        if steps == self._seen:  # called after an evaluation
            self._evaluating += time.process_time() - self._since_step
            return
        self._seen = steps
        self._since_step = time.process_time()
        if steps < self._last:
            return
        now = history.training_seconds, self._since_step - self._evaluating, history.samples
        if self._last == 0:
            self._say("ready")
        else:
            seconds, processor, samples = (after - before for after, before in zip(now, self._begin))
            scale = 1e3 * self._batch / samples  # the last batch of an epoch may be smaller
            self._say(f"{seconds * scale} {processor * scale}")
        self._last = steps + self._asked()
        self._begin, self._evaluating = (history.training_seconds, time.process_time(), history.samples), 0.0

    def _asked(self) -> int:
        for line in sys.stdin:
            _, what, steps = line.split()
            if what != "batch":
                return int(steps)
            self._say(str(self._batch))
        raise _End

    def _say(self, text: str) -> None:
        print(text, file=self._answers, flush=True)


def main(arguments: Sequence[str]) -> None:
    """Answers lines until the input ends."""
    kind, *rest = arguments
    # The run's own output goes to standard error; answers go to a copy of standard output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    flags = parse_flags([*rest, "--tables", "tensorflow" if kind == "no tables" else kind])
    bad_lines = BadLines(flags.max_bad_lines, say=lambda message: print(message, file=sys.stderr))
    with tf.Graph().as_default():
        dataset = make_dataset(flags, bad_lines)
        tables = NoTables() if kind == "no tables" else make_tables(flags, Ranks())
        trainer = Trainer(training_settings(flags), dataset, tables)
        with tf.compat.v1.Session() as session, Progress(1, io.StringIO(), shown=False) as progress:
            try:
                turns = _Turns(answers, flags.batch_size)
                trainer.run(session, History(), bad_lines, progress, turns.watch)
            except _End:
                pass


if __name__ == "__main__":
    main(sys.argv[1:])
