"""examples/dlrm/train_dlrm.py and examples/sok/dlrm.py learn from generated samples and lines of Criteo."""

import functools
import re

import pytest

from example_support import run_program, write_criteo

SMALL = ["--largest_vocabulary", "2000", "--train_steps", "120", "--validation_interval", "120"]


@functools.lru_cache(maxsize=None)
def area_of(program, *flags, size=1):
    """The last AUC."""
    output = run_program(program, *SMALL, *flags, size=size)
    found = re.findall(r"^ranks (\d+), step 120, loss (\S+), held-out AUC (\S+)$", output, re.MULTILINE)
    assert len(found) == 1 and int(found[0][0]) == size, output[-3000:]
    return float(found[0][2])


# Of dlrm/train_dlrm.py, whose tables may be cut in all ways.
CUT = [
    "--row_slice_threshold",
    "15000",
    "--column_slice_threshold",
    "3000",
    "--data_parallel_threshold",
    "100",
]


@pytest.mark.parametrize(
    "program, flags, size",
    [
        ("dlrm/train_dlrm.py", [], 1),
        ("dlrm/train_dlrm.py", CUT, 2),
        ("sok/dlrm.py", [], 1),
        ("sok/dlrm.py", [], 2),
    ],
)
def test_they_learn_generated_samples(program, flags, size):
    assert area_of(program, *flags, size=size) > 0.78


@pytest.mark.parametrize(
    "program, flags",
    [
        ("dlrm/train_dlrm.py", ["--strategy", "basic"]),
        ("sok/dlrm.py", ["--embedding_optimizer", "Adam", "--learning_rate", "0.01"]),
    ],
)
def test_they_learn_lines_of_criteo(tmp_path, program, flags):
    data = ["--data_dir", str(write_criteo(tmp_path, lines=600)), "--global_batch_size", "64"]
    assert area_of(program, *data, *flags) > 0.95


def test_soks_is_as_good_as_on_the_embeddings_of_keras():
    of_keras = area_of("sok/dlrm.py", "--embedding_layer", "TF")
    assert area_of("sok/dlrm.py") == pytest.approx(of_keras, abs=0.03)


def test_a_batch_that_ranks_do_not_divide_is_refused():
    with pytest.raises(AssertionError, match="must be a multiple of the 2 ranks, not 511"):
        run_program("dlrm/train_dlrm.py", "--global_batch_size", "511", size=2)
