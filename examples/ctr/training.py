"""The training loop: epochs of steps in a session, and held-out metrics during and after each epoch.

Every rank runs this loop. Its decisions (is there more data, was Ctrl-C pressed) are based on sums over
ranks, so that all ranks take the same steps. If a rank left out a step, the others would wait for it.

Workers of parameter servers decide for themselves. The first of them evaluates, for the last time when all
have trained on their shares.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.batches import BatchSource
from ctr.history import Evaluation, History, StepLoss, auc, log_loss
from ctr.models import MODELS, Inputs, ModelSettings
from ctr.ranks import Ranks
from ctr.report import Progress
from ctr.tables import Tables

# Seconds between two questions for what other workers have done.
_POLL_S = 0.1


class Interrupts:
    """A context manager that sets `pending` on Ctrl-C, instead of raising KeyboardInterrupt.

    An exception would interrupt a step for which other ranks wait. Outside of the main thread, where Python
    cannot handle signals, it does nothing.
    """

    def __init__(self) -> None:
        self.pending = False

    def clear(self) -> None:
        """Resets `pending`."""
        self.pending = False

    def __enter__(self) -> Interrupts:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._handler_before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._handler_before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.pending = True


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained."""

    model: str
    model_settings: ModelSettings
    batch_size: int  # of a step of each rank, summed; a multiple of the number of ranks
    epochs: int
    max_steps: int | None  # over all epochs; None for no limit
    optimizer: str
    learning_rate: float
    embedding_l2: float  # factor of the squared norm of the looked-up embeddings, mean over the batch
    seed: int
    evaluate_every: int | None = None  # steps between evaluations; None: only at the end of each epoch


class _Status(NamedTuple):
    """The numbers that are summed over ranks in each step."""

    more: int  # ranks whose next batch has samples
    samples: int  # of this step
    bad_lines: int
    interrupted: int  # ranks on which Ctrl-C was pressed


class Trainer:
    """One model on one data set, in the current graph."""

    def __init__(
        self,
        settings: TrainingSettings,
        dataset: Any,
        tables: Tables,
        ranks: Ranks | None = None,
        held_out: Any = None,
    ) -> None:
        """Builds the graph. Without `ranks`, there is one rank.

        `dataset` is this rank's share of samples. Held-out ones are those of `held_out`; None for `dataset`.
        """
        self._settings = settings
        self._tables = tables
        self._ranks = ranks or Ranks()
        self._evaluates = self._ranks.first or not self._ranks.apart
        # The order of the data must be the same on all ranks, but not the units that dropout drops.
        tf.compat.v1.set_random_seed(settings.seed)
        self._source = BatchSource(dataset, held_out or dataset, settings.batch_size // self._ranks.size)
        tf.compat.v1.set_random_seed(settings.seed + self._ranks.rank)
        inputs = Inputs(self._source.batch, dataset.schema, tables, self._source.training)
        self._labels = self._source.batch["label"]
        self._logits = MODELS[settings.model](inputs, settings.model_settings)
        self._make_status()
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=self._labels, logits=self._logits)
        # This rank's part of the mean over all ranks' samples. The rank may have no samples.
        samples = tf.cast(self._status[_Status._fields.index("samples")], tf.float32)
        loss = tf.reduce_sum(losses) / samples
        self._loss = self._ranks.sum(loss, "loss")
        objective = loss + self._penalty(inputs) / samples
        self._step = tables.train(objective, settings.optimizer, settings.learning_rate)
        self._own_results = tf.compat.v1.placeholder(tf.float32, [None, 2])
        self._all_results = self._ranks.concat(self._own_results, "results")
        # Made here, because the graph should not change after a session has run.
        self._trained, self._ended = _counter("samples_trained"), _counter("ranks_ended")
        self._count = tf.compat.v1.assign_add(self._trained, self._status[_Status._fields.index("samples")])
        self._end = tf.compat.v1.assign_add(self._ended, 1)
        self._rows = tables.rows_by_server() if self._ranks.apart else []
        self._memory = tables.hits_and_misses()
        self._missing = None if self._evaluates else tf.compat.v1.report_uninitialized_variables()
        self._initialize = tf.compat.v1.global_variables_initializer()
        self._broadcast = tables.broadcast()

    def _make_status(self) -> None:
        self._bad_lines = tf.compat.v1.placeholder(tf.int64, [])
        self._interrupted = tf.compat.v1.placeholder(tf.bool, [])
        own = _Status(self._source.more, tf.size(self._labels), self._bad_lines, self._interrupted)
        self._status = self._ranks.sum(tf.stack([tf.cast(value, tf.int64) for value in own]), "status")

    def _penalty(self, inputs: Inputs) -> tf.Tensor | float:
        if self._settings.embedding_l2 == 0:
            return 0.0
        return self._settings.embedding_l2 * tf.add_n(
            [tf.reduce_sum(tf.square(rows)) for rows in inputs.embeddings]
        )

    def run(
        self,
        session: tf.compat.v1.Session,
        history: History,
        bad_lines: BadLines,
        progress: Progress,
        watch: Callable[[History], None],
    ) -> None:
        """Trains and evaluates. Fills `history`, and calls `watch` after each new entry.

        Ctrl-C on any rank ends training on all ranks. The model trained so far is evaluated, unless Ctrl-C is
        pressed again. Raises TooManyBadLines on all ranks.
        """
        self._tables.prepare(session)
        if self._evaluates:
            session.run(self._initialize)
        else:  # the first worker does it
            while session.run(self._missing).size:
                time.sleep(_POLL_S)
        session.run(self._broadcast)
        with Interrupts() as interrupts:
            run = _Run(session, history, bad_lines, interrupts, progress, watch, start=time.perf_counter())
            try:
                for epoch in range(1, self._settings.epochs + 1):
                    history.epoch = epoch
                    self._run_epoch(run)
                    bad_lines.merge(self._ranks.objects(bad_lines.own_entries()))
                    if self._is_over(history):
                        break
            finally:
                history.seconds = run.seconds()
            history.rows_by_server = [int(rows) for rows in session.run(self._rows)]

    def _is_over(self, history: History) -> bool:
        limit = self._settings.max_steps
        return history.interrupted or (limit is not None and len(history.losses) >= limit)

    def _evaluation_is_due(self, history: History) -> bool:
        every = self._settings.evaluate_every if self._evaluates else None
        last = history.evaluations[-1].step if history.evaluations else 0
        return every is not None and len(history.losses) - last >= every

    def _run_epoch(self, run: _Run) -> None:
        """Trains on all batches. Evaluates when that is due, and at the end."""
        history = run.history
        # A different order for each epoch and seed.
        feeds = self._source.start_training(run.session, self._settings.seed * 1_000_003 + history.epoch)
        more = self._run(run, feeds, [])[0].more
        while True:
            while more and not self._is_over(history) and not self._evaluation_is_due(history):
                more = self._train(run, feeds)
            is_over = self._is_over(history) or (not more and history.epoch == self._settings.epochs)
            if is_over:
                self._wait_for_others(run)
            if self._evaluates:
                self._evaluate(run)
            if is_over or not more:
                return

    def _wait_for_others(self, run: _Run) -> None:
        """Returns when all ranks have ended training, or Ctrl-C was pressed. Only the first rank waits."""
        if not self._ranks.apart:
            return
        run.session.run(self._end)
        while self._ranks.first and not (run.history.interrupted or run.interrupts.pending):
            ended, trained = run.session.run([self._ended, self._trained])
            if trained > run.history.samples:
                self._advance(run, int(trained))
            if ended == self._ranks.size:
                return
            time.sleep(_POLL_S)

    def _advance(self, run: _Run, trained: int) -> None:
        """Shows and notes that all ranks have trained on so many samples."""
        history = run.history
        run.progress.advance(trained - history.samples, history.losses[-1].loss, history.epoch)
        history.samples = trained
        if self._ranks.apart:
            history.training_seconds = run.seconds()

    def _train(self, run: _Run, feeds: dict[tf.Tensor, Any]) -> int:
        """Runs a step; returns the number of ranks with another batch."""
        history = run.history
        start = run.seconds()
        fetches = [self._loss, self._step, self._count, self._memory]
        status, (loss, _, trained, memory) = self._run(run, feeds, fetches)
        run.progress.show_memory(*memory)
        now = run.seconds()
        history.training_seconds += now - start
        history.losses.append(StepLoss(len(history.losses) + 1, now, float(loss)))
        self._advance(run, int(trained))
        run.watch(history)
        return status.more

    def _evaluate(self, run: _Run) -> None:
        results = self._held_out_results(run)
        if results is None:
            run.progress.say("not evaluated")
            return
        labels, logits = results[:, 0], results[:, 1]
        evaluation = Evaluation(
            epoch=run.history.epoch,
            step=len(run.history.losses),
            seconds=run.seconds(),
            auc=auc(labels, logits),
            log_loss=log_loss(labels, logits),
        )
        run.history.evaluations.append(evaluation)
        run.progress.say(
            f"epoch {evaluation.epoch}, step {evaluation.step}: held-out AUC {evaluation.auc:.4f}, "
            f"log-loss {evaluation.log_loss:.4f}"
        )
        run.watch(run.history)

    def _held_out_results(self, run: _Run) -> np.ndarray | None:
        """float32 [n, 2]: labels and logits of all ranks' held-out samples; None after a second Ctrl-C."""
        feeds = self._source.start_held_out(run.session)
        # Starts with an empty array, because there may be no held-out samples.
        results = [np.zeros([0, 2], np.float32)]
        status, _ = self._run(run, feeds, [])
        while status.more:
            interrupted_before = run.history.interrupted
            status, columns = self._run(run, feeds, [self._labels, self._logits])
            if interrupted_before and status.interrupted:
                return None
            results.append(np.stack(columns, axis=1))
        # Checks the malformed lines that were added while reading the last batches.
        self._run(run, feeds, [])
        return run.session.run(self._all_results, {self._own_results: np.concatenate(results)})

    def _run(self, run: _Run, feeds: dict[tf.Tensor, Any], fetches: list[Any]) -> tuple[_Status, list[Any]]:
        """Runs `fetches` on the next batch; exchanges and checks the status of all ranks."""
        own = {self._bad_lines: run.bad_lines.own_count(), self._interrupted: run.interrupts.pending}
        values, *results = run.session.run([self._status, *fetches], {**feeds, **own})
        status = _Status(*values.tolist())
        run.bad_lines.check(status.bad_lines)
        if status.interrupted:
            run.interrupts.clear()
            if not run.history.interrupted:
                run.history.interrupted = True
                run.progress.say("interrupted: evaluating the model trained so far; Ctrl-C again skips that")
        return status, results


def _counter(name: str) -> tf.Variable:
    """A number that all workers of parameter servers share."""
    return tf.compat.v1.get_variable(
        name, [], tf.int64, tf.compat.v1.zeros_initializer(), trainable=False, use_resource=True
    )


@dataclasses.dataclass(frozen=True)
class _Run:
    """The state of a run that all steps use."""

    session: tf.compat.v1.Session
    history: History
    bad_lines: BadLines
    interrupts: Interrupts
    progress: Progress
    watch: Callable[[History], None]
    start: float

    def seconds(self) -> float:
        return time.perf_counter() - self.start
