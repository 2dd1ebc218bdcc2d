"""benchmarks/peers.py runs with the libraries in our own environment, and its tables are correct."""

import dataclasses
import pathlib

import numpy as np
import pytest

import sparse_operation_kit
from bench import axes, ids
from bench.axes import Bags, Tables
from bench.peers import catalog, environments, goals, memory, report
from bench.peers.job import Job
from bench.timing import Timing
from benchmark_support import BAZEL_BIN, run_program
from same_length import zip_equal

PROGRAM = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "peers.py"
SMALL = ["--features", "2", "--batch", "8", "--rows", "60", "--dim", "4", "--rounds", "1", "--batches", "2"]


def test_a_run_measures_installed_libraries_and_names_missing_ones(tmp_path):
    path = tmp_path / "rows.json"
    flags = ["--optimizer", "adagrad", "--json", str(path), "--plot", str(tmp_path / "plot.png")]
    done = run_program(PROGRAM, *SMALL, *flags, "--environments", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for missing in ("tfra", "torch", "fbgemm"):
        assert f"{missing} is left out" in done.stderr
    _, rows = report.read_json(path)
    # One id per bag and about ten; the forward lookup and the step.
    assert [(row.bags.hotness, row.what) for row in rows] == [
        (1, "forward"),
        (1, "step"),
        (10, "forward"),
        (10, "step"),
    ]
    for row in rows:
        assert [entry.name for entry in row.entries] == ["sok", "tensorflow", "engine"]
        assert all(0 < entry.timing.minimum <= entry.timing.median for entry in row.entries)
        assert row.entries[0].ratio == row.entries[0].cpu_ratio == 1
        assert (row.gather is not None) == (row.what == "forward")
    assert done.stdout.startswith(report.tables(rows))
    assert "- **tensorflow**: static" in done.stdout and "- **torch**" not in done.stdout
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_peer_is_an_error_that_lists_the_known():
    done = run_program(PROGRAM, *SMALL, "--peers", "tensorflow,tfr")
    assert done.returncode == 2
    assert "unknown name 'tfr'; known are sok_lazy, tensorflow, tfra, torch, fbgemm, engine" in done.stderr


@pytest.fixture
def checkout(tmp_path):
    """A checkout that has built what the tests run on."""
    built = tmp_path / "other" / "bazel-bin"
    (built / "tools").mkdir(parents=True)
    (built / "benchmarks").symlink_to(BAZEL_BIN / "benchmarks")
    python = pathlib.Path(sparse_operation_kit.__file__).absolute().parents[1]
    (built / "tools" / "site").symlink_to(python)
    # Where the package looks for its op library outside of a wheel.
    (built / "tools" / "sok_ops").symlink_to(python.parent / "sok_ops")
    return built.parent


def test_another_checkout_is_measured_beside_this_one(tmp_path, checkout):
    path = tmp_path / "rows.json"
    flags = ["--optimizer", "sgd", "--peers", "engine", "--what", "step", "--other", str(checkout)]
    done = run_program(PROGRAM, *SMALL, *flags, "--json", str(path), "--plot", str(tmp_path / "plot.png"))
    assert done.returncode == 0, done.stderr
    _, rows = report.read_json(path)
    for row in rows:
        names = [entry.name for entry in row.entries]
        assert names == ["sok", "engine", "sok_other", "engine_other"], done.stderr


def test_a_checkout_without_a_build_is_refused_with_what_builds_it(tmp_path):
    done = run_program(PROGRAM, *SMALL, "--other", str(tmp_path))
    assert done.returncode == 2
    assert "has no bazel-bin/tools/site" in done.stderr and "bazel build //tools:site" in done.stderr


def test_exact_adam_is_measured_beside_lazy_adam(tmp_path):
    path = tmp_path / "rows.json"
    flags = ["--optimizer", "adam", "--peers", "sok_lazy,tensorflow", "--what", "step", "--hotness", "1"]
    done = run_program(PROGRAM, *SMALL, *flags, "--json", str(path))
    assert done.returncode == 0, done.stderr
    _, (row,) = report.read_json(path)
    assert [entry.name for entry in row.entries] == ["sok", "sok_lazy", "tensorflow"]
    # TensorFlow's goal applies only to ten million rows.
    assert [(goal.beside, goal.ratio) for goal in goals.of_rows([row])] == [
        ("sok_lazy", row.entries[1].ratio)
    ]


def test_rows_have_only_the_goals_that_apply():
    def goals_of(what, optimizer, rows_per_table, **ratios):
        tables = Tables(features=2, rows_per_table=rows_per_table, dim=16, optimizer=optimizer)
        ours = Timing(2.0, 2.0, 2.0)
        entries = [
            report.Entry(name, Timing(2.0 * value, 0, 0), ours)
            for name, value in {"sok": 1, **ratios}.items()
        ]
        found = goals.of_rows([row_of(what, tables, tuple(entries))])
        return [(goal.beside, goal.least, goal.verdict()) for goal in found]

    ratios = {"tfra": 8.1, "tensorflow": 1.9, "engine": 0.9, "torch": 5.0, "fbgemm": 1.2}
    step = [("tfra", 8, "reached"), ("tensorflow", 2, "missed"), ("engine", 0.8, "reached")]
    assert goals_of("step", "lazy_adam", 100, **ratios) == step
    step = [("fbgemm", 1, "reached"), ("engine", 0.8, "reached")]
    assert goals_of("step", "rowwise_adagrad", 100, **ratios) == step
    assert goals_of("forward", "sgd", 100, **ratios) == []
    assert goals_of("forward", "sgd", 24_000_000, **ratios) == [("fbgemm", 1.3, "missed")]
    assert goals_of("step", "adam", 5_000_000, tensorflow=60.0) == [("tensorflow", 50, "reached")]


def row_of(what, tables, entries, gather=None):
    bags = Bags(batch=10, hotness=1, exponent=0)
    # 2 ms of copying at 3 GB/s.
    return report.Row(2, tables, bags, what, 20.0, 15.0, 6.0, 3.0, gather, entries)


def test_ratios_are_of_medians_to_ours_and_to_the_bounds():
    ours = Timing(median=4.0, minimum=3.5, median_cpu=6.0)
    peer = Timing(median=10.0, minimum=9.0, median_cpu=9.0)
    gather = Timing(median=1.0, minimum=0.5, median_cpu=1.5)
    tables = Tables(features=2, rows_per_table=100, dim=4, optimizer="sgd")
    entries = (report.Entry("sok", ours, ours), report.Entry("torch", peer, ours))
    lines = report.tables([row_of("forward", tables, entries, gather)]).splitlines()
    assert lines[0] == "**2 threads, 2 features, batch 10, uniform, 0 MB of rows**"
    cells = [[cell.strip() for cell in line.split("|")[5:-1]] for line in lines[4:]]
    assert cells == [
        ["6.0 MB copied", "2.00", "", "", "", "", ""],
        ["bare gather", "1.00 (0.50)", "1.50", "", "", "0.5", ""],
        ["sok", "4.00 (3.50)", "6.00", "1.00", "1.00", "2.0", "4.0"],
        ["torch", "10.00 (9.00)", "9.00", "2.50", "1.50", "5.0", "10.0"],
    ]


def test_peers_of_another_group_keep_our_time_from_their_rounds():
    def timing(milliseconds):
        return Timing(milliseconds, milliseconds, milliseconds)

    tables = Tables(features=2, rows_per_table=100, dim=4, optimizer="sgd")
    first = (report.Entry("sok", timing(2), timing(2)), report.Entry("torch", timing(4), timing(2)))
    second = (report.Entry("sok", timing(6), timing(6)), report.Entry("tfra", timing(9), timing(6)))
    joined = row_of("step", tables, first).joined(row_of("step", tables, second))
    assert [(entry.name, entry.ratio) for entry in joined.entries] == [
        ("sok", 1),
        ("torch", 2),
        ("tfra", 1.5),
    ]


@pytest.mark.parametrize(
    ("available", "groups", "left_out"),
    [
        (40, [["a", "b", "c"]], []),
        (39, [["a", "b"], ["c"]], []),
        (20, [["a"], ["b"], ["c"]], []),
        (19, [[]], ["a", "b", "c"]),
        (float("inf"), [["a", "b", "c"]], []),
    ],
)
def test_peers_are_split_into_groups_that_fit_beside_ours(available, groups, left_out):
    assert memory.groups_that_fit(["a", "b", "c"], 10, available) == (groups, left_out)


def test_a_library_needs_more_memory_than_its_rows_and_slots():
    tables = Tables(features=2, rows_per_table=10**7, dim=4, optimizer="adagrad")
    assert tables.bytes == 320e6
    assert memory.library_bytes(tables, batch=10) > 640e6
    assert memory.library_bytes(tables, batch=10**7) - memory.library_bytes(tables, batch=0) >= 2 * 320e6


@pytest.mark.parametrize(
    ("optimizer", "record"), [("sgd", 4), ("adagrad", 8), ("lazy_adam", 12), ("rowwise_adagrad", 5)]
)
def test_bytes_moved_are_ids_rows_outputs_gradients_and_records(optimizer, record):
    tables = Tables(features=2, rows_per_table=100, dim=4, optimizer=optimizer)
    forward = 8 * 30 + 20 * 16 + 2 * 10 * 16
    assert tables.bytes_moved("forward", 10, 30, 20) == forward
    assert tables.bytes_moved("step", 10, 30, 20) == forward + 2 * 10 * 16 + 2 * 20 * record * 4


def test_jobs_and_ids_are_read_as_written(tmp_path):
    bags = (Bags(6, 1, 0.0), Bags(6, 3, 1.2))
    files = [tmp_path / "0", tmp_path / "1"]
    written = [ids.make_batches(kind, 2, 50, 3, 7) for kind in bags]
    for batches, path in zip_equal(written, files):
        ids.write_batches(batches, path)
    job = Job(Tables(2, 50, 4, "sgd"), bags, tuple(map(str, files)), batches=3, threads=2, seed=7)
    job.write(tmp_path / "job")
    read = Job.read(tmp_path / "job")
    assert dataclasses.asdict(read) == dataclasses.asdict(job)
    for before, after in zip_equal(written, read.batch_sets()):
        for a, b in zip_equal(sum(before, []), sum(after, [])):
            np.testing.assert_array_equal(a.ids, b.ids)
            np.testing.assert_array_equal(a.offsets, b.offsets)
    np.testing.assert_array_equal(job.rows(1), read.rows(1))
    assert not np.array_equal(job.rows(0), job.rows(1))


def test_flags_with_several_values_are_combined_and_zipf_0_is_uniform():
    import argparse

    parser = argparse.ArgumentParser()
    axes.add_flags(parser)
    chosen = axes.from_flags(parser.parse_args(["--features", "26,55", "--batch", "8,16", "--zipf", "0"]))
    assert [(one.features, one.batch, one.exponent) for one in chosen] == [
        (26, 8, 0),
        (26, 16, 0),
        (55, 8, 0),
        (55, 16, 0),
    ]
    (batch,) = ids.make_batches(Bags(20000, 1, 0.0), 1, 10, 1, seed=1)
    assert np.bincount(batch[0].ids, minlength=10).min() > 1800


def test_every_library_says_what_it_does_and_has_a_module():
    for library in catalog.LIBRARIES.values():
        module = pathlib.Path(environments.__file__).parent / f"{library.module}.py"
        assert module.is_file() and library.tables and library.training
        assert set(library.optimizers) <= set(axes.OPTIMIZERS)
