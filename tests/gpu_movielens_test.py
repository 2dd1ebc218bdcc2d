"""MovieLens' first steps: with its tables on the GPU a model has the losses of the CPU, bit for bit.

SOK_MOVIELENS names a folder with MovieLens 100K as published, for a thousand steps. Without it the data are
made up, and the steps fewer.
"""

from __future__ import annotations

import os
import pathlib

import numpy as np
import tensorflow as tf

import fake_gpu_device  # noqa: F401 - before the library
import harness
import sparse_operation_kit as sok
from ctr.bad_lines import BadLines
from ctr.datasets.movielens import MovieLens
from ctr.history import History
from ctr.models.model import ModelSettings
from ctr.progress import Progress
from ctr.tables import SokTables
from ctr.training import Trainer, TrainingSettings
from example_support import write_movielens
from same_length import zip_equal

v1 = tf.compat.v1
DATA = os.environ.get("SOK_MOVIELENS")
STEPS, BATCH = 1000 if DATA else 200, 8


def train(folder: pathlib.Path) -> tuple[list[float], list[np.ndarray]]:
    """The loss of each step, and the tables afterwards."""
    settings = TrainingSettings(
        model="dcn_v2",
        model_settings=ModelSettings(dim=4, hidden=(8,), dropout=0.0, cross_layers=1),
        batch_size=BATCH,
        epochs=1,
        max_steps=STEPS,
        optimizer="adam",
        learning_rate=0.01,
        embedding_l2=0.0,
        seed=harness.SEED,
    )
    bad_lines, history = BadLines(0, print), History()
    # With one thread, TensorFlow's own sums have one order.
    config = v1.ConfigProto(intra_op_parallelism_threads=1)
    with tf.Graph().as_default():
        dataset = MovieLens(str(folder), harness.SEED, 0.01, bad_lines)
        trainer = Trainer(settings, dataset, SokTables(harness.GLOBAL_BATCH_SIZE, harness.SEED))
        tables = [table for table in v1.global_variables() if isinstance(table, sok.EmbeddingVariable)]
        reader = harness.TableReader(*tables)
        with v1.Session(config=config) as session, Progress(STEPS * BATCH, shown=False) as progress:
            trainer.run(session, history, bad_lines, progress, lambda _: None)
            contents = reader.read(session)
    assert len(history.losses) == STEPS
    return [step.loss for step in history.losses], tf.nest.flatten(contents)


def test_losses_and_tables_are_those_of_the_cpu(monkeypatch, tmp_path):
    samples = STEPS * BATCH * 5 // 4
    folder = pathlib.Path(DATA) if DATA else write_movielens(tmp_path, samples, users=900, items=1600)
    results = []
    for device in ("cpu", "gpu"):
        monkeypatch.setenv("SOK_DEVICE", device)
        results.append(train(folder))
    (on_cpu, rows_on_cpu), (on_gpu, rows_on_gpu) = results
    assert on_gpu == on_cpu
    for ours, theirs in zip_equal(rows_on_gpu, rows_on_cpu):
        np.testing.assert_array_equal(ours, theirs)
    assert np.mean(on_gpu[-50:]) < np.mean(on_gpu[:10])
