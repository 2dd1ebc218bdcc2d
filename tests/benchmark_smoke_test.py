# Tags: slow
# Not on GPUs: a program; the tests gpu_* have one
"""The workloads of benchmarks/measure.py run at a tiny size, also beside other libraries and over ranks."""

import dataclasses
import pathlib
import re
import shutil

import numpy as np
import pytest

import measure
import ranks
import sparse_operation_kit
from bench import compare, flags, report, sides
from bench.jobs import Job
from bench.server_costs import Costs, Load, Server, servers_needed, usage
from benchmark_support import BAZEL_BIN, MEASURE, TINY, run_program, run_workload
from workloads import growth, peers, serving

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


def test_row_types(tmp_path):
    _, results = run_workload(tmp_path, "row_types", "--dim", "64", "--hotness", "1")
    assert [result.question["what"] for result in results] == ["forward", "step"]
    bytes_of = [int(name.split(", ")[-1].split()[0]) for name in results[0].timings]
    assert bytes_of == [768, 516, 644, 388, 388, 264, 256] and results[0].ours.startswith("float32")


def test_tables_on_disk(tmp_path):
    _, results = run_workload(tmp_path, "tables_on_disk", "--folder", str(tmp_path))
    assert [result.question["share"] for result in results] == [0.5, 0.1]
    for result in results:
        assert list(result.timings) == ["all in memory", "in memory in part"]


def test_row_quality(tmp_path):
    done, results = run_workload(tmp_path, "row_quality")
    assert [result.question["seed"] for result in results] == [1, 2]
    for result in results:
        assert list(result.counts) == ["float32", "bfloat16"]
        assert all(0.2 < auc < 1 for auc in result.counts.values())
    assert re.search(r"\n\| bfloat16 +\| 28 +\| [+-]0\.\d{4} ± 0\.\d{4} \|", done.stdout)


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
    goals = run_program(MEASURE, "goals", "--saved", str(tmp_path / "results.json"))
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


def test_parameter_servers(tmp_path):
    done, (step, server) = run_workload(tmp_path, "parameter_servers", "--sides", "sok,tensorflow")
    assert [list(result.timings) for result in (step, server)] == [["sok", "tensorflow"]] * 2
    assert [(goal.beside, goal.least) for goal in (*step.goals, *server.goals)] == [
        ("tensorflow", 1.5),
        ("tensorflow", 2.0),
    ]
    by_server = [step.counts[f"sok: rows of server {number}"] for number in range(2)]
    assert 0 < sum(by_server) <= 60
    assert len(done.stdout.splitlines()) == 2 + 4


def test_serving(tmp_path):
    done, results = run_workload(tmp_path, "serving", "--environments", str(tmp_path))
    assert "tfra is left out" in done.stderr
    questions = [(result.question["hotness"], result.question["batch"]) for result in results]
    assert questions == [(1, 1), (1, 12), (3, 1), (3, 12)]
    for result in results:
        assert list(result.timings) == ["stock", "library"]
        for name, timing in result.timings.items():
            assert timing.median <= result.counts[f"{name}: p99"]
            assert result.counts[f"{name}: requests/s"] > 0 and result.counts[f"{name}: load s"] > 0
        # An op for the group, against some for each table.
        assert result.counts["library: ops"] < result.counts["stock: ops"]
    assert done.stdout == serving.table(results) + "\n"


def test_key_lookups(tmp_path):
    done, results = run_workload(tmp_path, "key_lookups")
    assert [result.question["keys"] for result in results] == [50, 300]
    for result in results:
        assert list(result.timings) == ["hash table", "sorted", "buckets"]
        assert result.counts["buckets: keys of a window"] >= 4


def test_open_tables(tmp_path):
    _, results = run_workload(tmp_path, "open_tables", "--folder", str(tmp_path))
    assert [(result.question["rows"], result.question["files"]) for result in results] == [
        (125_000, "warm"),
        (125_000, "cold"),
    ]
    for result in results:
        assert list(result.timings) == ["mapped", "read"]
        assert result.counts["mapped: private MB"] > 0


def test_growth(tmp_path):
    done, results = run_workload(tmp_path, "growth", "--environments", str(tmp_path), "--peer_rows", "90")
    assert [result.question["rows"] for result in results] == [90, 300]
    for result, rows, steps in zip(results, (90, 210), (2, 4)):
        assert list(result.timings) == (["sok", "tensorflow"] if rows == 90 else ["sok"])
        assert (
            result.counts["sok: longest step, ms"] * 1e6 * steps
            >= result.counts["sok: ns a new row"] * rows
            > 0
        )
        assert result.counts["sok: longest / median"] >= 1
        assert (result.counts.get("sok: of the kernel alone", 0) > 0) == (rows == 90)
        assert result.counts["sok: processor ms, most"] >= result.counts["sok: processor ms of a step"] > 0
    assert done.stdout == growth.table(results) + "\n"


def test_results_are_reported_again(tmp_path):
    _, results = run_workload(tmp_path, "growth", "--environments", str(tmp_path))
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    without = [dataclasses.replace(result, timings={"sok": result.timings["sok"]}) for result in results[1:]]
    report.write(first, "growth", {}, without)
    report.write(second, "growth", {}, results)
    heads = [line for line in growth.table(results).splitlines() if line.startswith("| rows")]
    document = tmp_path / "document.md"
    old = [f"{head}\n|---|\n| old |" for head in heads]
    document.write_text("\n\nbetween\n\n".join(old) + "\n", encoding="utf-8")
    flags = ["--saved", f"{first},{second}", "--into", str(document), "--plot", str(tmp_path / "plot.svg")]
    done = run_program(MEASURE, "growth", *flags)
    assert done.returncode == 0, done.stderr
    expected = growth.table(results).replace("\n\n", "\n\nbetween\n\n") + "\n"
    assert document.read_text(encoding="utf-8") == expected
    assert (tmp_path / "plot.svg").read_text(encoding="utf-8").startswith("<?xml")
    document.write_text("no table", encoding="utf-8")
    assert run_program(MEASURE, "growth", *flags).returncode != 0


def test_server_costs(tmp_path):
    done, results = run_workload(tmp_path, "server_costs")
    checked, costs, of_jobs = results[0], results[1:3], results[3:]
    # Programs beside this one add to what is measured. Messages have headers besides.
    assert 0 < checked.counts["MB predicted"] < checked.counts["MB measured"]
    assert min(checked.counts["ms predicted"], checked.counts["ms measured"]) > 0
    assert [result.question["of"] for result in costs] == ["processor", "locks"]
    assert [result.question["workers"] for result in of_jobs] == [10, 100, 1000] * 2
    assert len(done.stdout.splitlines()) == 4 + 1 + 3 + 1 + 8


def test_costs_of_servers_are_found_from_what_they_make():
    costs = Costs(message=0.1, table=0.0, id=2e-4, byte=1e-6)
    loads = [Load(*load) for load in ((26, 16, 3e4), (26, 16, 1e3), (26, 64, 3e4), (4, 16, 9e3), (4, 8, 50))]
    found = Costs.fitted(loads, [costs.of(load) for load in loads])
    np.testing.assert_allclose(dataclasses.astuple(found), dataclasses.astuple(costs), atol=1e-9)


def test_servers_of_a_job_are_as_many_as_what_it_uses_most_needs():
    costs, server = Costs(message=0.01, table=0, id=1e-4, byte=0), Server(cores=4, link=1e10)

    def needed(workers, dim):
        def used(servers):
            return usage(Load(26, dim, 3e4 / servers), workers * 10.0, costs, Costs(0, 0, 1e-5, 0), server)

        return servers_needed(used)

    # 1000 steps a second of 0.03 + 3 / n ms on each of n servers take 0.7 of 4 cores of 1.09 servers.
    assert needed(100, 1) == (2, "processor")
    # 4 MB in a direction with rows of 32 floats: 1000 steps a second take 0.7 of 10 Gbit/s of 4.9 servers.
    assert needed(100, 32) == (5, "network")
    # Each step takes each server 0.03 ms, however many they are.
    assert needed(10_000, 1) == (None, "processor")


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


def test_restores_of_all_forms(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    done, (result,) = run_workload(tmp_path, "restores", "--folder", str(folder))
    forms = ["own", "increment", "raw", "deeprec", "sok2", "variable", "recommenders_addons"]
    others = ["save", "save of raw", "over its rows", "new memory", "reading", "convert"]
    others += ["1 to 2 servers", "save, 2 servers"]
    assert sorted(result.timings) == sorted([*forms, *others])
    assert sorted(result.counts) == sorted(forms)
    assert all(0 <= result.counts[form] < 64 for form in forms)
    assert len(done.stdout.splitlines()) == 2 + len(result.timings)
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


def test_rows_in_16_bits_are_measured_beside_the_engine(tmp_path):
    small = ["--optimizer", "sgd", "--hotness", "1", "--peers", "engine,tensorflow", "--what", "step"]
    _, results = run_workload(tmp_path, "peers", *small, "--row_dtype", "float32,bfloat16")
    # TensorFlow's side has no rows in 16 bits.
    assert [list(result.timings)[1:] for result in results] == [
        ["sok", "engine", "tensorflow"],
        ["sok", "engine"],
    ]
    assert [result.question["row_dtype"] for result in results] == ["float32", "bfloat16"]


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


@pytest.fixture
def launcher():
    ranks.require("mpi")


@pytest.mark.usefixtures("launcher")
def test_a_group_exchanges_what_the_formula_says(tmp_path):
    _, results = run_workload(tmp_path, "lookups_over_ranks", "--ranks", "3")
    assert [result.question["what"] for result in results] == ["forward", "step"]
    for result in results:
        assert list(result.timings) == ["sok", "plain", "unique"]
        assert result.counts["exchanges"] == 3
        # Rows of three floats do not fill whole words, so messages are rounded up.
        assert result.counts["sent"] == result.counts["formula"] > 0


@pytest.mark.usefixtures("launcher")
def test_one_rank_exchanges_nothing(tmp_path):
    _, results = run_workload(tmp_path, "lookups_over_ranks", "--ranks", "1")
    assert (
        [result.counts["sent"] for result in results] == [0, 0] == [one.counts["formula"] for one in results]
    )


@pytest.mark.parametrize(("hotness", "sizes"), [("1", [1, 3]), ("4", [2])])
@pytest.mark.usefixtures("launcher")
def test_lookups_a_step_ahead(hotness, sizes, tmp_path):
    launches = ["--ranks", ",".join(map(str, sizes)), "--hotness", hotness]
    _, results = run_workload(tmp_path, "lookup_prefetch", *launches)
    assert [result.question["ranks"] for result in results] == sizes
    assert all(list(result.timings) == ["plain", "ahead"] for result in results)
    if hotness == "1":
        assert [result.counts["ids"] for result in results] == [36, 12]


@pytest.mark.usefixtures("launcher")
def test_sums_send_less_for_long_bags_of_distinct_ids(tmp_path):
    # Nearly uniform ids, of which few are equal.
    _, results = run_workload(tmp_path, "rows_or_sums", "--ranks", "2", "--zipf", "0.1", "--hotness", "1,64")
    assert [result.question["ids per bag"] for result in results] == [1, 64]
    short, long = ([one.counts[f"MB sent, {mode}"] for mode in ("rows", "sums")] for one in results)
    assert 0 < short[0] <= short[1]
    assert 0 < long[1] < long[0]


@pytest.mark.usefixtures("launcher")
def test_synthetic_models_have_equal_losses_on_both_sides(tmp_path):
    _, (result,) = run_workload(tmp_path, "synthetic_models", "--ranks", "2")
    assert result.question == {"model": "dlrm", "ranks": 2}
    assert list(result.timings) == ["over ranks", "plain", "network"]
    # Ids, rows and gradients: one exchange each, whatever the number of tables.
    assert result.counts["exchanges"] == 3
    assert result.counts["bytes"] > 0 and result.counts["bytes, plain"] > 0


@pytest.mark.usefixtures("launcher")
def test_restores_on_other_numbers_of_ranks(tmp_path):
    _, (result,) = run_workload(tmp_path, "restores", "--forms", "own", "--held", "300", "--ranks", "2,1")
    wanted = ["1 to 2 ranks", "save, 2 ranks", "2 to 1 ranks", "save, 1 ranks"]
    assert [name for name in result.timings if "ranks" in name] == wanted
