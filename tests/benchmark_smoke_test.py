"""The workloads of benchmarks/measure.py run at a tiny size; benchmark_ranks_test has those over ranks."""

import shutil

import pytest

import measure
from bench import report
from benchmark_support import MEASURE, TINY, run_program, run_workload

READ_FILES = {"goals", "gpu"}


def test_every_workload_has_a_tiny_size():
    assert sorted({*TINY, *READ_FILES}) == measure.WORKLOADS


def test_lookup_and_step_under_its_own_name(tmp_path):
    path = tmp_path / "results.json"
    flags = [*TINY["lookup_and_step"].split(), "--optimizer", "adam", "--threads", "1,2"]
    program = MEASURE.with_name("lookup_and_step.py")
    done = run_program(program, *flags, "--hotness", "1", "--json", str(path))
    assert done.returncode == 0, done.stderr
    results = report.read(path)
    questions = [(result.question["threads"], result.question["what"]) for result in results]
    assert questions == [(threads, what) for threads in (1, 2) for what in ("forward", "lookup", "step")]
    for result in results:
        assert list(result.timings)[1:] == ["session.run alone", "sok", "tensorflow", "engine"]
        assert 0 < result.counts["unique"] < result.counts["ids"]
    assert done.stdout == report.table(results) + "\n"


def test_without_the_engine_and_with_bags(tmp_path):
    _, results = run_workload(
        tmp_path, "lookup_and_step", "--no-engine", "--hotness", "3", "--threads", "1", "--optimizer", "sgd"
    )
    assert [list(result.timings)[2:] for result in results] == [["sok", "tensorflow"]] * 3


def test_parts(tmp_path):
    done, results = run_workload(tmp_path, "parts", "--part", "dedup,index,gather,update,cores")
    parts = [(result.question["part"], result.question.get("threads")) for result in results]
    assert parts[:3] == [("dedup", 1), ("dedup", 2), ("index", 1)]
    assert parts[3:7] == [("gather", 1), ("pool", 1), ("gather", 2), ("pool", 2)]
    assert parts[7:] == [("update", 1)] * 2 + [("update", 2)] * 2 + [("cores", None)]
    for result in results[:7]:
        (goal,) = result.goals
        assert list(result.timings)[-1] == result.ours == "engine"
        assert goal.beside in result.timings
        assert goal.beside == "tf.unique" or goal.beside.endswith("lines in flight")
    assert results[-1].counts["a cache line to the other core, ns"] > 1
    # The goals are read from that file.
    goals = run_program(MEASURE, "goals", "--results", str(tmp_path / "results.json"))
    assert goals.stdout == report.goals_table(results) + "\n"
    assert len(goals.stdout.splitlines()) == 2 + 7


def test_trainer_skips_data_that_it_has_not(tmp_path):
    done, (result,) = run_workload(tmp_path, "trainer")
    assert "movielens is left out" in done.stderr
    assert (result.question["trainer"], result.question["batch"]) == ("synthetic", 32)
    assert list(result.timings) == ["sok", "tensorflow", "no tables"]
    assert [goal.beside for goal in result.goals] == ["tensorflow"]


def test_feature_columns(tmp_path):
    _, results = run_workload(tmp_path, "feature_columns")
    assert [result.question["kind"] for result in results] == ["identity", "hash"]
    for result in results:
        assert result.counts["ops in graph, grouped"] < result.counts["ops in graph, plain"] / 3
        assert 0 < result.counts["ops in step, grouped"] < result.counts["ops in step, plain"] / 2


def test_checkpoints_take_no_memory_that_grows_with_the_table(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    _, results = run_workload(tmp_path, "checkpoints", "--folder", str(folder))
    sizes = [(result.question["GiB of rows"], result.question["what"]) for result in results]
    assert sizes == [(gib, what) for gib in (0.001, 0.1) for what in ("save", "restore")]
    for result in results:
        assert result.counts["rows"] == int(result.question["GiB of rows"] * 2**30 / (4 * 3 * 8))
        # The larger table has 102.4 MiB.
        assert 0 <= result.counts["MiB above"] < 64
    assert not list(folder.iterdir())


def test_many_tables_take_one_file_beside_tensorflows(tmp_path):
    _, results = run_workload(tmp_path, "many_tables", "--folder", str(tmp_path))
    assert [result.question["what"] for result in results] == ["save", "restore"]
    for result in results:
        assert result.counts == {"files of tables": 2, "files of variables": 2}


@pytest.mark.skipif(shutil.which("callgrind_annotate") is None, reason="needs valgrind")
def test_instructions_of_the_parts_add_up_to_a_step(tmp_path):
    from workloads import instructions

    _, results = run_workload(tmp_path, "instructions", "--hotness", "3")
    counts = {result.question["part"]: result.counts["instructions per id"] for result in results}
    assert list(counts) == [*instructions.PARTS, instructions.REST, instructions.STEP]
    assert all(counts[name] > 0 for name in instructions.PARTS)
    assert sum(counts.values()) == pytest.approx(2 * counts[instructions.STEP])


@pytest.mark.parametrize(
    ("workload", "flags", "message"),
    [
        ("lookup_and_step", "--optimizer adamm", "unknown optimizer 'adamm'; known are lazy_adam"),
        ("parts", "--part index,dedupe", "unknown part 'dedupe'; known are dedup, index, gather"),
        ("trainer", "--dataset census", "unknown data set 'census'; known are movielens, synthetic"),
        ("feature_columns", "--kind crossed", "unknown kind 'crossed'; known are identity, hash"),
        ("rows_or_sums", "--transport ucx", "unknown transport 'ucx'; known are mpi, gloo"),
        ("rows_or_sums", "--hotness 2,many", "argument --hotness: 'many' is not a whole number"),
        (
            "peers",
            "--peers tensorflow,tfr",
            "unknown name 'tfr'; known are sok_lazy, tensorflow, tfra, torch",
        ),
        ("peers", "--other .", "has no bazel-bin/tools/site: build it there with `bazel build //tools:site"),
        ("peers", "--dims 4", "unknown flags: --dims 4"),
    ],
)
def test_a_wrong_flag_is_an_error_that_says_what_is_right(workload, flags, message, capsys):
    with pytest.raises(SystemExit) as error:
        measure.main([workload, *flags.split()])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_an_unknown_workload_is_an_error_that_lists_the_known(capsys):
    assert measure.main(["peer"]) == 2
    assert f"Workloads: {', '.join(measure.WORKLOADS)}" in capsys.readouterr().err
