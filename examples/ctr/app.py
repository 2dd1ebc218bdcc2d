"""One run from flags to files."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ctr.bad_lines import BadLines, TooManyBadLines
from ctr.datasets import make_dataset
from ctr.flags import parse_flags
from ctr.history import History, auc, log_loss
from ctr.models import ModelSettings
from ctr.ranks import Ranks, start_ranks
from ctr.report import Progress, TensorBoard, final_table, write_results
from ctr.tables import ColumnTables, Records, SokTables, Tables, TensorFlowTables
from ctr.training import Trainer, TrainingSettings

# Exit status that shells report for a program ended by Ctrl-C.
_INTERRUPTED = 130


class NoDevice(Exception):
    """The device that was asked for is not there."""


class _CannotStart(Exception):
    """Data, the library or the device is missing on some rank.

    Raised on all ranks, with the first such rank's reason.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains and reports. Only the first rank prints and writes files.

    Returns:
      The exit status: 0; 1 if data, the library or the device cannot be used, or another rank fails; 130
      after Ctrl-C.
    """
    ranks = start_ranks()
    with contextlib.ExitStack() as stack:
        # What a worker of parameter servers says about itself, only it knows.
        if not ranks.first and not ranks.apart:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        return _run(parse_flags(arguments, ranks.size), ranks)


def _run(flags: argparse.Namespace, ranks: Ranks) -> int:
    bad_lines = BadLines(flags.max_bad_lines, say=lambda message: print(message, file=sys.stderr))
    history = History()
    error = None
    try:
        with tf.Graph().as_default():
            _train(flags, ranks, bad_lines, history)
    except (_CannotStart, TooManyBadLines) as raised:  # on all ranks
        error = raised
    except tf.errors.OpError as failed:
        reason = _reason_of_others(failed, ranks)
        if reason is None:
            raise
        # No traceback, which would hide that of the rank that failed first.
        print(f"error: the ranks cannot continue: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before or after the steps; see Interrupts
        return _INTERRUPTED
    bad_lines.merge(ranks.objects(bad_lines.own_entries()))
    if error is not None:
        print(f"error: {error}", file=sys.stderr)
    if bad_lines.summary():
        print(bad_lines.summary(), file=sys.stderr)
    if history.losses and ranks.first:
        _report(flags, ranks, bad_lines, history)
    # Waits until the first rank has reported: a launcher ends all ranks when one ends with a status other
    # than 0.
    ranks.objects(None)
    if error is not None:
        return 1
    return _INTERRUPTED if history.interrupted else 0


def _reason_of_others(error: tf.errors.OpError, ranks: Ranks) -> str | None:
    """The message if the error is that another rank or a server failed or cannot be reached; else None."""
    lines = error.message.splitlines()
    if ranks.apart:
        is_lost = isinstance(error, (tf.errors.AbortedError, tf.errors.UnavailableError))
        return lines[0] if is_lost else None
    return next((line for line in lines if ranks.size > 1 and "Horovod has" in line), None)


def _train(flags: argparse.Namespace, ranks: Ranks, bad_lines: BadLines, history: History) -> None:
    config, (dataset, held_out), tables = _make_inputs(flags, ranks, bad_lines)
    if flags.dataset == "synthetic" and ranks.first:
        labels, logits = dataset.best_logits()
        history.best = auc(labels, logits), log_loss(labels, logits)
    target = ranks.start(config)
    with ranks.scope():
        trainer = Trainer(training_settings(flags), dataset, tables, ranks, held_out)
    total = dataset.training_size() * flags.epochs
    if flags.max_steps is not None:
        total = min(total, flags.max_steps * flags.batch_size)
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(tf.compat.v1.Session(target, config=config))
        progress = stack.enter_context(Progress(total, shown=ranks.first))
        board = stack.enter_context(TensorBoard(flags.output_dir)) if ranks.first else None
        trainer.run(session, history, bad_lines, progress, board.update if board else lambda _: None)


def _make_inputs(
    flags: argparse.Namespace, ranks: Ranks, bad_lines: BadLines
) -> tuple[tf.compat.v1.ConfigProto, Any, Tables]:
    """The session's configuration, the data sets to train on and to evaluate on, and the tables.

    Raises _CannotStart on every rank if one of them cannot make them.
    """
    problem, inputs = None, None
    try:
        config = use_device(flags.device, ranks.local_rank)
        dataset = make_dataset(flags, bad_lines, ranks.share)
        held_out = make_dataset(flags, bad_lines) if ranks.apart else dataset
        inputs = config, (dataset, held_out), make_tables(flags, ranks)
    # ImportError: the library is not installed, or was built for another TensorFlow; the message tells.
    except (FileNotFoundError, ImportError, NoDevice, TooManyBadLines) as error:
        problem = str(error)
    for rank, other in enumerate(ranks.objects(problem)):
        if other is not None:
            raise _CannotStart(other if rank == 0 else f"rank {rank}: {other}")
    return inputs


def use_device(device: str | None, number: int) -> tf.compat.v1.ConfigProto:
    """Chooses the device of SOK's tables that are made from now on, and of a session with the result.

    Args:
      device: "cpu", "gpu", or None: a GPU if TensorFlow has one.
      number: Of this rank among the ranks of its machine, which share the machine's GPUs in turn.

    Raises:
      NoDevice: `device` is "gpu", but TensorFlow has none.
    """
    config = tf.compat.v1.ConfigProto()
    # Otherwise TensorFlow takes the memory that tables, and other ranks on the same GPU, need.
    config.gpu_options.allow_growth = True
    gpus = len(tf.config.experimental.list_physical_devices("GPU"))
    if device == "gpu" and gpus == 0:
        raise NoDevice("--device gpu: TensorFlow finds no GPU, or has no plugin for it")
    if device == "cpu":
        config.device_count["GPU"] = 0
    elif gpus > 1:
        config.gpu_options.visible_device_list = str(number % gpus)
    if device is None:
        os.environ.pop("SOK_DEVICE", None)
    else:
        os.environ["SOK_DEVICE"] = device
    return config


def make_tables(flags: argparse.Namespace, ranks: Ranks) -> Tables:
    """The tables that the flags select. Raises ImportError if the library cannot be loaded."""
    if flags.tables == "tensorflow":
        return TensorFlowTables(flags.tensorflow_rows, ranks)
    make = ColumnTables if flags.api == "feature_column" else SokTables
    records = Records(
        tf.as_dtype(flags.row_dtype),
        tf.as_dtype(flags.slot_dtype),
        flags.rounding,
        flags.second_moment,
        _storage(flags),
    )
    return make(flags.batch_size, flags.seed, records)


def _storage(flags: argparse.Namespace) -> Any:
    """Where rows are that memory has no room for; None if it has for all."""
    if flags.disk is None:
        return None
    from sparse_operation_kit.deeprec import StorageOption, StorageType

    return StorageOption(StorageType.DRAM_SSDHASH, flags.disk, [int(flags.memory_mb * 1e6)])


def training_settings(flags: argparse.Namespace) -> TrainingSettings:
    """The settings that the flags describe."""
    return TrainingSettings(
        model=flags.model,
        model_settings=ModelSettings(flags.dim, flags.hidden, flags.dropout, flags.cross_layers),
        batch_size=flags.batch_size,
        epochs=flags.epochs,
        max_steps=flags.max_steps,
        evaluate_every=flags.evaluate_every,
        optimizer=flags.optimizer,
        learning_rate=flags.learning_rate,
        embedding_l2=flags.embedding_l2,
        seed=flags.seed,
    )


def _report(flags: argparse.Namespace, ranks: Ranks, bad_lines: BadLines, history: History) -> None:
    run = {name: getattr(flags, name) for name in ("dataset", "model", "tables", "optimizer")}
    run.update(ranks.sizes())
    write_results(history, bad_lines, run, vars(flags), flags.output_dir)
    print(final_table(history, run))
    if history.rows_by_server:
        print("rows by server: " + ", ".join(f"{rows:,}" for rows in history.rows_by_server))
    print(f"events, results.json and curves.png are in {os.path.abspath(flags.output_dir)}")
