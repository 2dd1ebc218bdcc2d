"""benchmarks/synthetic_models.py runs, and both sides have equal losses, which it checks itself."""

import json
import pathlib

import pytest

import ranks
from benchmark_support import run_program

PROGRAM = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "synthetic_models.py"
SMALL = ["--scale", "100000", "--batch", "12", "--batches", "2", "--rounds", "1", "--calls", "1"]


@pytest.mark.parametrize("transport, size", [("mpi", 2)])
def test_it_measures_a_model(transport, size, tmp_path):
    ranks.require(transport)
    path = tmp_path / "results.json"
    launch = ["--transport", transport, "--ranks", str(size), "--models", "dlrm", "--json", str(path)]
    done = run_program(PROGRAM, *SMALL, *launch, "--profile", "2")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(path.read_text())
    assert (result["model"], result["ranks"]) == ("dlrm", size)
    # Ids, rows and gradients: one exchange each, whatever the number of tables.
    assert result["counts"]["exchanges"] == 3
    assert result["counts"]["bytes_over_ranks"] > 0 and result["counts"]["bytes_gathered"] > 0
    assert all(0 < timing["minimum"] <= timing["median"] for timing in result["timings"].values())
    assert done.stdout.splitlines()[0].startswith("| model")
    table, profile = done.stdout.split("\n\n")
    assert len(table.splitlines()) == 3
    assert profile.splitlines()[0].startswith("| ms (ops) of dlrm, 2 ranks")
    profiles = result["profiles"]
    assert profiles["over ranks"]["SokExchange"]["nodes"] == 3
    assert profiles["plain"]["HorovodAllgather"]["nodes"] == 2 * 26
    assert not any(kind.startswith("Sok") for kind in profiles["plain"])
