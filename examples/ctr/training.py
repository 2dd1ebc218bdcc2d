"""The training loop: epochs of steps in a session, and held-out metrics after each."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.batch_source import BatchSource
from ctr.history import Evaluation, History, StepLoss
from ctr.metrics import auc, log_loss
from ctr.models import MODELS
from ctr.models.model import Inputs, ModelSettings
from ctr.optimizers import make_stock_optimizer
from ctr.progress import Progress
from ctr.tables import Tables


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained."""

    model: str
    model_settings: ModelSettings
    batch_size: int
    epochs: int
    max_steps: int | None  # over all epochs; None: no limit
    optimizer: str
    learning_rate: float
    embedding_l2: float  # times the mean over the batch of the squared length of what was looked up
    seed: int


class Trainer:
    """One model on one data set, in the current graph."""

    def __init__(self, settings: TrainingSettings, dataset: Any, tables: Tables) -> None:
        """Builds the graph."""
        self._settings = settings
        self._tables = tables
        tf.compat.v1.set_random_seed(settings.seed)
        self._source = BatchSource(dataset, settings.batch_size)
        inputs = Inputs(self._source.batch, dataset.schema, tables, self._source.training)
        self._labels = self._source.batch["label"]
        self._size = tf.size(self._labels)
        self._logits = MODELS[settings.model](inputs, settings.model_settings)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=self._labels, logits=self._logits)
        self._loss = tf.reduce_mean(losses)
        self._step = self._make_step(self._loss + self._penalty(inputs))
        # Made before any session runs: a graph should not change afterwards.
        self._initialize = tf.compat.v1.global_variables_initializer()

    def _penalty(self, inputs: Inputs) -> tf.Tensor | float:
        if self._settings.embedding_l2 == 0:
            return 0.0
        lengths = [tf.reduce_sum(tf.square(rows), axis=[1, 2]) for rows in inputs.embeddings]
        return self._settings.embedding_l2 * tf.reduce_mean(tf.add_n(lengths))

    def _make_step(self, loss: tf.Tensor) -> tf.Operation:
        """Embeddings and dense weights each by an optimizer of their own, from one backward pass."""
        embeddings, others = self._tables.split(tf.compat.v1.trainable_variables())
        gradients = tf.gradients(loss, list(embeddings) + list(others))
        table_gradients, other_gradients = gradients[: len(embeddings)], gradients[len(embeddings) :]
        name, rate = self._settings.optimizer, self._settings.learning_rate
        table_optimizer, optimizer = self._tables.optimizer(name, rate), make_stock_optimizer(name, rate)
        return tf.group(
            table_optimizer.apply_gradients(list(zip(table_gradients, embeddings, strict=True))),
            optimizer.apply_gradients(list(zip(other_gradients, others, strict=True))),
        )

    def run(
        self,
        session: tf.compat.v1.Session,
        history: History,
        bad_lines: BadLines,
        progress: Progress,
        watch: Callable[[History], None],
    ) -> None:
        """Trains and evaluates, and fills `history`; `watch` is called whenever it has grown.

        Ctrl-C ends the training; what was learnt until then is evaluated, unless Ctrl-C comes again. Raises
        TooManyBadLines.
        """
        self._tables.prepare(session)
        session.run(self._initialize)
        run = _Run(session, history, progress, watch, start=time.perf_counter())
        try:
            for epoch in range(1, self._settings.epochs + 1):
                history.epoch = epoch
                self._run_epoch(run)
                self._evaluate(run)
                if self._reached_limit(history):
                    break
        except KeyboardInterrupt:
            history.interrupted = True
            progress.say("interrupted: evaluating what was learnt; Ctrl-C again skips that")
            try:
                self._evaluate(run)
            except KeyboardInterrupt:
                progress.say("not evaluated")
        except tf.errors.OpError:
            # The reader's exception arrives as an error of the op that ran it; ours says more.
            bad_lines.check()
            raise
        finally:
            history.seconds = run.seconds()

    def _reached_limit(self, history: History) -> bool:
        return self._settings.max_steps is not None and len(history.losses) >= self._settings.max_steps

    def _run_epoch(self, run: _Run) -> None:
        history = run.history
        # An order of its own for each epoch and seed.
        feeds = self._source.start_training(run.session, self._settings.seed * 1_000_003 + history.epoch)
        while not self._reached_limit(history):
            step_start = run.seconds()
            try:
                loss, size, _ = run.session.run([self._loss, self._size, self._step], feeds)
            except tf.errors.OutOfRangeError:
                return
            now = run.seconds()
            history.training_seconds += now - step_start
            history.samples += int(size)
            history.losses.append(StepLoss(len(history.losses) + 1, now, float(loss)))
            run.progress.advance(int(size), float(loss), history.epoch)
            run.watch(history)

    def _evaluate(self, run: _Run) -> None:
        labels, logits = self._held_out_logits(run.session)
        evaluation = Evaluation(
            epoch=run.history.epoch,
            step=len(run.history.losses),
            seconds=run.seconds(),
            auc=auc(labels, logits),
            log_loss=log_loss(labels, logits),
        )
        run.history.evaluations.append(evaluation)
        run.progress.say(
            f"epoch {evaluation.epoch}: held-out AUC {evaluation.auc:.4f}, log-loss {evaluation.log_loss:.4f}"
        )
        run.watch(run.history)

    def _held_out_logits(self, session: tf.compat.v1.Session) -> tuple[np.ndarray, np.ndarray]:
        feeds = self._source.start_held_out(session)
        # Begun with an empty batch: there may be no held-out sample at all.
        labels, logits = [np.zeros(0, np.float32)], [np.zeros(0, np.float32)]
        while True:
            try:
                some_labels, some_logits = session.run([self._labels, self._logits], feeds)
            except tf.errors.OutOfRangeError:
                return np.concatenate(labels), np.concatenate(logits)
            labels.append(some_labels)
            logits.append(some_logits)


@dataclasses.dataclass(frozen=True)
class _Run:
    """What the loop's steps share."""

    session: tf.compat.v1.Session
    history: History
    progress: Progress
    watch: Callable[[History], None]
    start: float

    def seconds(self) -> float:
        return time.perf_counter() - self.start
