"""The workload `peers` of benchmarks/measure.py runs with the libraries in our own environment."""

import pathlib

import pytest

import sparse_operation_kit
from bench import compare, flags, sides
from bench.jobs import Job
from benchmark_support import BAZEL_BIN, run_workload
from workloads import peers


def test_a_run_measures_installed_libraries_and_names_missing_ones(tmp_path):
    small = ["--optimizer", "adagrad", "--environments", str(tmp_path)]
    done, results = run_workload(tmp_path, "peers", *small)
    for missing in ("tfra", "torch", "fbgemm"):
        assert f"{missing} is left out" in done.stderr
    # One id per bag and about ten; the forward lookup and the step.
    questions = [(result.question["hotness"], result.question["what"]) for result in results]
    assert questions == [(1, "forward"), (1, "step"), (10, "forward"), (10, "step")]
    for result in results:
        gather = ["bare gather"] if result.question["what"] == "forward" else []
        assert list(result.timings)[1:] == ["sok", "tensorflow", "engine", *gather]
        assert result.ratio("sok") == 1


def test_another_checkout_is_measured_beside_this_one(tmp_path):
    # A checkout that has built what the tests run on.
    built = tmp_path / "other" / "bazel-bin"
    (built / "tools").mkdir(parents=True)
    (built / "benchmarks").symlink_to(BAZEL_BIN / "benchmarks")
    python = pathlib.Path(sparse_operation_kit.__file__).absolute().parents[1]
    (built / "tools" / "site").symlink_to(python)
    # Where the package looks for its op library outside of a wheel.
    (built / "tools" / "sok_ops").symlink_to(python.parent / "sok_ops")
    small = ["--optimizer", "sgd", "--hotness", "1", "--peers", "engine", "--what", "step"]
    done, (result,) = run_workload(tmp_path, "peers", *small, "--other", str(built.parent))
    assert list(result.timings)[1:] == ["sok", "engine", "sok_other", "engine_other"], done.stderr


def test_exact_adam_is_measured_beside_lazy_adam(tmp_path):
    small = ["--optimizer", "adam", "--peers", "sok_lazy,tensorflow", "--what", "step", "--hotness", "1"]
    _, (result,) = run_workload(tmp_path, "peers", *small)
    assert list(result.timings)[1:] == ["sok", "sok_lazy", "tensorflow"]
    # TensorFlow's goal applies only to ten million rows.
    assert [goal.beside for goal in result.goals] == ["sok_lazy"]


def test_results_have_only_the_goals_that_apply():
    def goals_of(what, optimizer, rows, *besides):
        job = Job(features=2, rows=rows, dim=16, optimizer=optimizer)
        return [(goal.beside, goal.least) for goal in compare.goals_of(job, what, besides)]

    besides = ("sok", "tfra", "tensorflow", "engine", "torch", "fbgemm")
    assert goals_of("step", "lazy_adam", 100, *besides) == [("tfra", 8), ("tensorflow", 2), ("engine", 0.8)]
    assert goals_of("step", "rowwise_adagrad", 100, *besides) == [("fbgemm", 1), ("engine", 0.8)]
    assert goals_of("forward", "sgd", 100, *besides) == []
    assert goals_of("forward", "sgd", 24_000_000, *besides) == [("fbgemm", 1.3)]
    assert goals_of("step", "adam", 5_000_000, "tensorflow") == [("tensorflow", 50)]


@pytest.mark.parametrize(
    ("available", "groups"),
    [
        (40, [["a", "b", "c"]]),
        (39, [["a", "b"], ["c"]]),
        (20, [["a"], ["b"], ["c"]]),
        (19, [[]]),
        (float("inf"), [["a", "b", "c"]]),
    ],
)
def test_peers_are_split_into_groups_that_fit_beside_ours(available, groups):
    assert peers.groups_that_fit(["a", "b", "c"], 10, available) == groups


def test_a_library_needs_more_memory_than_its_rows_and_slots():
    def bytes_with(batch):
        return peers.library_bytes(Job(features=2, rows=10**7, dim=4, optimizer="adagrad", batch=batch))

    assert bytes_with(10) > 640e6
    assert bytes_with(10**7) - bytes_with(0) >= 2 * 320e6


def test_every_library_has_a_module_and_known_optimizers():
    for library in sides.LIBRARIES.values():
        module, name = library.place.split(".")
        assert f"class {name}(" in pathlib.Path(sides.__file__).with_name(f"{module}.py").read_text()
        assert set(library.optimizers) <= set(flags.OPTIMIZERS)
