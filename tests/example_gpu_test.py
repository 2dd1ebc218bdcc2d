"""The example trainer with its tables on TensorFlow's /GPU:0, that of `fake_gpu_device`."""

import os

import pytest
import tensorflow as tf

import fake_gpu_device  # noqa: F401 - gives this process the device
from ctr import app, devices
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
        assert devices.use_device(None, number).gpu_options.visible_device_list == device
    assert devices.use_device("cpu", 1).device_count["GPU"] == 0
    assert os.environ.pop("SOK_DEVICE") == "cpu"
