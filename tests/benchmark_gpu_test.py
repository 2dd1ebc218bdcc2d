# Not on GPUs: it always has the fake one
"""The benchmarks of GPUs: both sides on `fake_gpu_device`, and engine_benchmark on the host."""

import json
import pathlib
import runpy
import subprocess

import pytest
import tensorflow as tf

import fake_gpu_device  # noqa: F401 - gives this process the device
import measure
from benchmark_support import BAZEL_BIN, run_workload

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


def test_the_work_of_the_host(tmp_path):
    _, results = run_workload(tmp_path, "gpu_host_work")
    assert len(results) == 2 * 3
    for result in results:
        assert list(result.timings) == ["session.run alone", "step"]
        assert 8 * result.counts["ids"] <= result.counts["bytes_to_device"]
        assert result.counts["allocations"] == 0 < result.counts["kernels"]


BENCHMARK = BAZEL_BIN / "cuda" / "programs" / "engine_benchmark_on_host"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "benchmark.json"
    run = subprocess.run([BENCHMARK, "--small", f"--json={path}"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "mean nothing" in run.stdout
    return path


def test_every_case_has_its_speed_and_its_bytes(results):
    values = json.loads(results.read_text())
    assert values["device"] == "host"
    assert values["left_out"] == []
    assert values["machine"]["device"] == "CUDA on the host"
    shown = {case["what"] for case in values["cases"]}
    assert shown == {
        *("copy", "read", "find key", "find absent key", "find rows", "gather", "gather merged", "pool"),
        *("pool merged", "distinct ids", "lookup", "lookup to train", "find or insert", "insert", "update"),
        *("backward", "group step"),
        *(f"step, {share} % on the device" for share in (100, 50, 20, 10)),
    }
    for case in values["cases"]:
        assert case["ms"]["rounds"] == 2
        assert 0 < case["ms"]["least"] <= case["ms"]["median"] <= case["ms"]["most"]
        assert case["gb_per_s"] == pytest.approx(case["bytes"] / case["ms"]["median"] / 1e6)
        if case["what"] in ("copy", "read"):
            continue
        assert case["bytes_per_id"] * case["ids"] == pytest.approx(case["bytes"])
        assert case["share_of_copy"] == pytest.approx(case["gb_per_s"] / case["copy_gb_per_s"])
        assert 0 < case["distinct_per_id"] <= 1


def test_searches_in_the_index_have_the_loads_and_ids_asked_for(results):
    values = json.loads(results.read_text())
    searches = [case for case in values["cases"] if case["what"] == "find key"]
    assert {case["ids"] for case in searches} == {values["options"]["ids"]}
    loads = [case["load"] for case in searches if case["ids_drawn"] == "uniform"]
    assert loads == pytest.approx([0.5, 0.75, 0.9], rel=0.03)
    for load in {case["load"] for case in searches}:
        uniform, zipf = (case for case in searches if case["load"] == load)
        assert uniform["bytes_per_id"] > zipf["bytes_per_id"]


def test_rows_and_slots_decide_the_bytes(results):
    cases = json.loads(results.read_text())["cases"]

    def of(what, **labels):
        found = [
            case
            for case in cases
            if case["what"] == what and all(case.get(name) == value for name, value in labels.items())
        ]
        return found[0]["bytes_per_id"]

    assert of("find rows", dim=64) > of("find rows", dim=8)
    lazy_adam, sgd = (
        of("update", dim=64, optimizer=name, ids_drawn="uniform") for name in ("lazy_adam", "sgd")
    )
    assert lazy_adam > sgd


def test_the_program_shows_shares_by_dim(results, tmp_path, capsys):
    plot = tmp_path / "plot.png"
    assert measure.main(["gpu", "--results", str(results), "--plot", str(plot)]) == 0
    printed = capsys.readouterr().out
    assert "mean nothing" in printed
    assert "uniform ids: share of the copy bandwidth" in printed
    assert "dim 8" in printed
    assert any(line.startswith("| pool, ") for line in printed.splitlines())
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"program": "other", "format": 1}')
    with pytest.raises(SystemExit, match="no file of engine_benchmark"):
        measure.main(["gpu", "--results", str(path)])


def test_a_wrong_option_is_refused():
    run = subprocess.run([BENCHMARK, "--dims=8,x"], capture_output=True, text=True)
    assert run.returncode == 2
    assert "--dims=8,x" in run.stderr
