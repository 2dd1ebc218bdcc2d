# Tags: slow
# Not on GPUs: it always has the fake one
"""The example trainer with its tables on TensorFlow's /GPU:0, that of `fake_gpu_device`: the CPU's losses.

SOK_MOVIELENS names a folder with MovieLens 100K as published, for a thousand steps. Without it the data are
made up, and the steps fewer.
"""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fake_gpu_device  # noqa: F401 - gives this process the device
import harness
import sparse_operation_kit as sok
from ctr import app
from ctr.bad_lines import BadLines
from ctr.datasets.movielens import MovieLens
from ctr.history import History
from ctr.models import ModelSettings
from ctr.report import Progress
from ctr.tables import SokTables
from ctr.training import Trainer, TrainingSettings
from example_runs_program import train
from example_support import results_of, write_movielens

# Of MovieLens' form; the network is small, for it runs on the CPU.
FLAGS = ["--dataset", "movielens", "--batch_size", "16", "--dim", "4", "--hidden", "4", "--dropout", "0"]


@pytest.fixture(autouse=True)
def _no_setting(monkeypatch):
    monkeypatch.delenv("SOK_DEVICE", raising=False)


def results(folder, device, *flags):
    data = ["--data_dir", str(folder / "data"), "--output_dir", str(folder / device)]
    assert train([*FLAGS, *data, "--device", device, *flags], optimize=True) == 0
    return results_of(folder / device)["evaluations"]


def test_training_has_the_cpus_bits(tmp_path):
    write_movielens(tmp_path / "data")
    flags = ["--epochs", "2"]
    with fake_gpu_device.copies() as on_cpu:
        expected = results(tmp_path, "cpu", *flags)
    with fake_gpu_device.copies() as on_gpu:
        got = results(tmp_path, "gpu", *flags)
    assert [found["auc"] for found in got] == [found["auc"] for found in expected]
    assert [found["log_loss"] for found in got] == [found["log_loss"] for found in expected]
    assert on_cpu.to_device == 0 < on_gpu.to_device


def test_a_device_that_is_not_there_is_an_error(tmp_path, capsys, monkeypatch):
    write_movielens(tmp_path / "data", ratings=50)
    monkeypatch.setattr(tf.config.experimental, "list_physical_devices", lambda _: [])
    assert app.main([*FLAGS, "--data_dir", str(tmp_path / "data"), "--device", "gpu"]) == 1
    assert "--device gpu: TensorFlow finds no GPU" in capsys.readouterr().err
    assert "SOK_DEVICE" not in os.environ


def test_ranks_take_the_gpus_of_a_machine_in_turn(monkeypatch):
    monkeypatch.setattr(tf.config.experimental, "list_physical_devices", lambda _: ["/GPU:0", "/GPU:1"])
    for number, device in enumerate(["0", "1", "0"]):
        assert app.use_device(None, number).gpu_options.visible_device_list == device
    assert app.use_device("cpu", 1).device_count["GPU"] == 0
    assert os.environ.pop("SOK_DEVICE") == "cpu"


v1 = tf.compat.v1
DATA = os.environ.get("SOK_MOVIELENS")
STEPS, BATCH = 1000 if DATA else 200, 8


def train_on_movielens(folder: pathlib.Path) -> tuple[list[float], list[np.ndarray]]:
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
        results.append(train_on_movielens(folder))
    (on_cpu, rows_on_cpu), (on_gpu, rows_on_gpu) = results
    assert on_gpu == on_cpu
    harness.assert_equal_arrays(rows_on_gpu, rows_on_cpu)
    assert np.mean(on_gpu[-50:]) < np.mean(on_gpu[:10])
