"""The workloads of benchmarks/measure.py over ranks run at a tiny size, and exchange what they should."""

import pytest

import ranks
from benchmark_support import run_workload


@pytest.fixture(autouse=True)
def _launcher():
    ranks.require("mpi")


def test_a_group_exchanges_what_the_formula_says(tmp_path):
    _, results = run_workload(tmp_path, "lookups_over_ranks", "--ranks", "3")
    assert [result.question["what"] for result in results] == ["forward", "step"]
    for result in results:
        assert list(result.timings) == ["sok", "plain", "unique"]
        assert result.counts["exchanges"] == 3
        # Rows of three floats do not fill whole words, so messages are rounded up.
        assert result.counts["sent"] == result.counts["formula"] > 0


def test_one_rank_exchanges_nothing(tmp_path):
    _, results = run_workload(tmp_path, "lookups_over_ranks", "--ranks", "1")
    assert (
        [result.counts["sent"] for result in results] == [0, 0] == [one.counts["formula"] for one in results]
    )


@pytest.mark.parametrize(("hotness", "sizes"), [("1", [1, 3]), ("4", [2])])
def test_lookups_a_step_ahead(hotness, sizes, tmp_path):
    launches = ["--ranks", ",".join(map(str, sizes)), "--hotness", hotness]
    _, results = run_workload(tmp_path, "lookup_prefetch", *launches)
    assert [result.question["ranks"] for result in results] == sizes
    assert all(list(result.timings) == ["plain", "ahead"] for result in results)
    if hotness == "1":
        assert [result.counts["ids"] for result in results] == [36, 12]


def test_sums_send_less_for_long_bags_of_distinct_ids(tmp_path):
    # Nearly uniform ids, of which few are equal.
    _, results = run_workload(tmp_path, "rows_or_sums", "--ranks", "2", "--zipf", "0.1", "--hotness", "1,64")
    assert [result.question["ids per bag"] for result in results] == [1, 64]
    short, long = ([one.counts[f"MB sent, {mode}"] for mode in ("rows", "sums")] for one in results)
    assert 0 < short[0] <= short[1]
    assert 0 < long[1] < long[0]


def test_synthetic_models_have_equal_losses_on_both_sides(tmp_path):
    _, (result,) = run_workload(tmp_path, "synthetic_models", "--ranks", "2")
    assert result.question == {"model": "dlrm", "ranks": 2}
    assert list(result.timings) == ["over ranks", "plain", "network"]


def test_restores_on_other_numbers_of_ranks(tmp_path):
    _, (result,) = run_workload(tmp_path, "restores", "--forms", "own", "--held", "300", "--ranks", "2,1")
    wanted = ["1 to 2 ranks", "save, 2 ranks", "2 to 1 ranks", "save, 1 ranks"]
    assert [name for name in result.timings if "ranks" in name] == wanted
    # Ids, rows and gradients: one exchange each, whatever the number of tables.
    assert result.counts["exchanges"] == 3
    assert result.counts["bytes"] > 0 and result.counts["bytes, plain"] > 0
