"""The example on SOK's tables: with every optimizer, compared with TensorFlow's tables, and as a script."""

import subprocess
import sys

from ctr.optimizers import NAMES
from example_support import (
    EXAMPLES,
    SMALL_FLAGS,
    check_that_both_learn,
    data_flags,
    example_environment,
    results_of,
    run_all,
)


def test_every_optimizer_trains_sok_tables(tmp_path):
    flags = [*SMALL_FLAGS, *data_flags("movielens", tmp_path), "--max_steps", "3"]
    run_all([[*flags, "--optimizer", name, "--output_dir", str(tmp_path / name)] for name in NAMES])
    for name in NAMES:
        assert results_of(tmp_path / name)["steps"] == 3


def test_both_kinds_of_tables_learn_the_same(tmp_path):
    check_that_both_learn(tmp_path, "--tables", ("sok", "tensorflow"))


def test_the_script_runs_as_in_its_readme(tmp_path):
    command = [
        sys.executable,
        str(EXAMPLES / "train_ctr.py"),
        "--samples",
        "2000",
        "--held_out_samples",
        "500",
    ]
    result = subprocess.run(
        [*command, "--output_dir", str(tmp_path)],
        env=example_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    names, values = result.stdout.splitlines()[:2]
    assert "best AUC" in names and values.split()[:3] == ["synthetic", results_of(tmp_path)["model"], "sok"]
    # The bar shows loss, speed and time left.
    assert "loss" in result.stderr and "samples/s" in result.stderr and "<" in result.stderr
