"""One run from flags to files."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import tensorflow as tf

from ctr.bad_lines import BadLines, TooManyBadLines
from ctr.datasets import make_dataset
from ctr.flags import parse_flags
from ctr.history import History
from ctr.metrics import auc, log_loss
from ctr.models.model import ModelSettings
from ctr.progress import Progress
from ctr.report import TensorBoard, final_table, write_results
from ctr.tables import SokTables, Tables, TensorFlowTables
from ctr.training import Trainer, TrainingSettings

# As shells report a program ended by Ctrl-C.
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, reports, and returns the exit status: 0, 1 for unusable data or library, 130 after Ctrl-C."""
    flags = parse_flags(arguments)
    bad_lines = BadLines(flags.max_bad_lines, say=lambda message: print(message, file=sys.stderr))
    history = History()
    status = 0
    try:
        with tf.Graph().as_default():
            _train(flags, bad_lines, history)
    # ImportError: the library is not installed, or was built for another TensorFlow; it says which.
    except (FileNotFoundError, ImportError, TooManyBadLines) as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        history.interrupted = True
    if bad_lines.summary():
        print(bad_lines.summary(), file=sys.stderr)
    if history.losses:
        _report(flags, bad_lines, history)
    return _INTERRUPTED if history.interrupted else status


def _train(flags: argparse.Namespace, bad_lines: BadLines, history: History) -> None:
    dataset = make_dataset(flags, bad_lines)
    if flags.dataset == "synthetic":
        labels, logits = dataset.best_logits()
        history.best = auc(labels, logits), log_loss(labels, logits)
    trainer = Trainer(_settings(flags), dataset, _tables(flags))
    total = dataset.training_size() * flags.epochs
    if flags.max_steps is not None:
        total = min(total, flags.max_steps * flags.batch_size)
    with (
        tf.compat.v1.Session() as session,
        Progress(total) as progress,
        TensorBoard(flags.output_dir) as board,
    ):
        trainer.run(session, history, bad_lines, progress, board.update)


def _tables(flags: argparse.Namespace) -> Tables:
    if flags.tables == "tensorflow":
        return TensorFlowTables(flags.tensorflow_rows)
    return SokTables(flags.batch_size, flags.seed)


def _settings(flags: argparse.Namespace) -> TrainingSettings:
    return TrainingSettings(
        model=flags.model,
        model_settings=ModelSettings(flags.dim, flags.hidden, flags.dropout, flags.cross_layers),
        batch_size=flags.batch_size,
        epochs=flags.epochs,
        max_steps=flags.max_steps,
        optimizer=flags.optimizer,
        learning_rate=flags.learning_rate,
        embedding_l2=flags.embedding_l2,
        seed=flags.seed,
    )


def _report(flags: argparse.Namespace, bad_lines: BadLines, history: History) -> None:
    run = {name: getattr(flags, name) for name in ("dataset", "model", "tables", "optimizer")}
    write_results(history, bad_lines, run, vars(flags), flags.output_dir)
    print(final_table(history, run))
    print(f"events, results.json and curves.png are in {os.path.abspath(flags.output_dir)}")
