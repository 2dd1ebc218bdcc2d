"""examples/dlrm/train_dlrm.py learns on one and two ranks, with tables whole, cut and replicated."""

import re

import pytest

from example_support import run_program, write_criteo

SMALL = ["--largest_vocabulary", "2000", "--validation_interval", "120", "--train_steps", "120"]


def area_of(*flags, size=1):
    """The last AUC."""
    output = run_program("dlrm/train_dlrm.py", *SMALL, *flags, size=size)
    found = re.findall(r"^ranks (\d+), step 120, loss (\S+), held-out AUC (\S+)$", output, re.MULTILINE)
    assert len(found) == 1 and int(found[0][0]) == size, output[-3000:]
    return float(found[0][2])


def test_it_learns_generated_samples():
    assert area_of() > 0.78


def test_it_learns_with_tables_cut_in_all_ways():
    cut = ["--row_slice_threshold", "15000", "--column_slice_threshold", "3000"]
    assert area_of(*cut, "--data_parallel_threshold", "100", size=2) > 0.78


def test_it_learns_lines_of_criteo(tmp_path):
    flags = ["--data_dir", str(write_criteo(tmp_path, lines=600)), "--global_batch_size", "64"]
    assert area_of(*flags, "--strategy", "basic") > 0.95


def test_a_batch_that_ranks_do_not_divide_is_refused():
    with pytest.raises(AssertionError, match="must be a multiple of the 2 ranks, not 511"):
        run_program("dlrm/train_dlrm.py", "--global_batch_size", "511", size=2)
