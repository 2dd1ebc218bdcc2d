"""One run of examples/train_ctr.py, a number of steps at a time.

`python -m bench.trainer_program TABLES [FLAG_OF_TRAIN_CTR]...`, where TABLES is sok, tensorflow, "no tables"
for constant embeddings without lookups or table updates, or "batches alone". Prints "ready" after its first
step. Then it answers the lines

    0 step <steps>   with the wall time and processor time of a step, in milliseconds
    0 ops <steps>    with a JSON object of the milliseconds of a step's ops, by type
    batch            with the number of samples in a step

As in train_ctr.py's samples per second, evaluations do not count. The work before an epoch's first step
counts in processor time, but not in wall time. "batches alone" answers the first line only.
"""

from __future__ import annotations

import argparse
import collections
import io
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

import tensorflow as tf

from ctr.app import make_tables, training_settings
from ctr.bad_lines import BadLines
from ctr.batch_source import BatchSource
from ctr.datasets import make_dataset
from ctr.flags import parse_flags
from ctr.history import History
from ctr.optimizers import make_stock_optimizer
from ctr.progress import Progress
from ctr.ranks import Ranks
from ctr.tables import Tables
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


class _TracedSession:
    """A session that traces its runs if `tracing` is set."""

    def __init__(self, session: tf.compat.v1.Session) -> None:
        self._session = session
        self.tracing = False
        self.milliseconds: collections.Counter[str] = collections.Counter()  # in traced runs, by type of op

    def run(self, fetches: object, feeds: dict | None = None) -> object:
        """As Session.run."""
        if not self.tracing:
            return self._session.run(fetches, feeds)
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.SOFTWARE_TRACE)
        metadata = tf.compat.v1.RunMetadata()
        result = self._session.run(fetches, feeds, options=options, run_metadata=metadata)
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                # "name = Type(inputs)"
                kind = node.timeline_label.partition(" = ")[2].partition("(")[0] or node.node_name
                self.milliseconds[kind] += (node.op_end_rel_micros - node.op_start_rel_micros) / 1e3
        return result


class _Turns:
    """Answers lines between the steps of a run."""

    def __init__(self, answers: TextIO, batch: int, session: _TracedSession) -> None:
        self._answers = answers
        self._session = session
        self._batch = batch
        self._seen = 0
        self._first = self._last = 0  # the step numbers at which the turn begins and ends
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
        elif self._session.tracing:
            count = steps - self._first
            self._say(json.dumps({op: ms / count for op, ms in self._session.milliseconds.most_common()}))
        else:
            seconds, processor, samples = (after - before for after, before in zip(now, self._begin))
            scale = 1e3 * self._batch / samples  # the last batch of an epoch may be smaller
            self._say(f"{seconds * scale} {processor * scale}")
        self._first, self._last = steps, steps + self._asked()
        self._begin, self._evaluating = (history.training_seconds, time.process_time(), history.samples), 0.0

    def _asked(self) -> int:
        for line in sys.stdin:
            if line.strip() != "batch":
                _, what, steps = line.split()
                self._session.tracing = what == "ops"
                self._session.milliseconds.clear()
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
    flags = parse_flags([*rest, "--tables", kind if kind in ("sok", "tensorflow") else "tensorflow"])
    bad_lines = BadLines(flags.max_bad_lines, say=lambda message: print(message, file=sys.stderr))
    with tf.Graph().as_default():
        dataset = make_dataset(flags, bad_lines)
        if kind == "batches alone":
            _read_batches(flags, dataset, answers)
            return
        tables = NoTables() if kind == "no tables" else make_tables(flags, Ranks())
        trainer = Trainer(training_settings(flags), dataset, tables)
        with tf.compat.v1.Session() as session, Progress(1, io.StringIO(), shown=False) as progress:
            traced = _TracedSession(session)
            turns = _Turns(answers, flags.batch_size, traced)
            try:
                trainer.run(traced, History(), bad_lines, progress, turns.watch)
            except _End:
                pass


def _read_batches(flags: argparse.Namespace, dataset: object, answers: TextIO) -> None:
    source = BatchSource(dataset, flags.batch_size)
    with tf.compat.v1.Session() as session:
        epochs = itertools.count()
        feeds, more = {}, False
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            seconds, processor, steps = 0.0, time.process_time(), int(line.split()[2])
            for _ in range(steps):
                if not more:  # as in the trainer, the work before an epoch's first step does not count
                    feeds = source.start_training(session, next(epochs))
                    session.run(source.more, feeds)
                begin = time.perf_counter()
                more = session.run([source.more, source.batch["label"]], feeds)[0]
                seconds += time.perf_counter() - begin
            print(
                seconds * 1e3 / steps,
                (time.process_time() - processor) * 1e3 / steps,
                file=answers,
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
