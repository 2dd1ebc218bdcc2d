"""benchmarks/lookup_and_step.py with both sides on TensorFlow's /GPU:0, that of `fake_gpu_device`."""

import json
import pathlib
import runpy

import pytest
import tensorflow as tf

import fake_gpu_device  # noqa: F401 - gives this process the device

PROGRAM = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "lookup_and_step.py"
SMALL = ["--features", "2", "--batch", "8", "--rows", "60", "--dim", "4", "--rounds", "1", "--batches", "2"]


@pytest.fixture
def main(monkeypatch):
    monkeypatch.delenv("SOK_DEVICE", raising=False)
    return runpy.run_path(str(PROGRAM))["main"]


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_a_run_measures_both_sides_on_the_device(main, tmp_path, device):
    path = tmp_path / "rows.json"
    with fake_gpu_device.copies() as copies:
        assert main([*SMALL, "--optimizer", "lazy_adam", "--device", device, "--json", str(path)]) == 0
    written = json.loads(path.read_text(encoding="utf-8"))
    # 2 kinds of bags; the forward lookup, the lookup and the step.
    assert len(written["results"]) == 2 * 3
    for result in written["results"]:
        assert result["question"]["device"] == device
        names = set(result["timings"])
        assert {"sok", "tensorflow"} <= names and (device == "cpu" or "engine" not in names)
    assert (copies.to_device > 0) == (device == "gpu")


def test_without_a_gpu_it_says_so(main, monkeypatch):
    monkeypatch.setattr(tf.config.experimental, "list_physical_devices", lambda _: [])
    with pytest.raises(SystemExit, match="--device gpu: TensorFlow finds no GPU"):
        main([*SMALL, "--device", "gpu"])
