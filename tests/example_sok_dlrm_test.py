"""examples/sok/dlrm.py learns from generated data and data in Criteo's format, on one and two ranks."""

import functools
import re

import pytest

from example_support import run_program, write_criteo

SMALL = ["--largest_vocabulary", "2000", "--validation_interval", "60", "--train_steps", "120"]


@functools.lru_cache(maxsize=None)
def results(*flags, size=1):
    """(ranks, last loss, last AUC)."""
    output = run_program("sok/dlrm.py", *SMALL, *flags, size=size)
    found = re.findall(r"ranks (\d+), step \d+, loss (\S+), held-out AUC (\S+)", output)
    assert len(found) == 2, output[-3000:]
    ranks, loss, auc = found[-1]
    return int(ranks), float(loss), float(auc)


@pytest.mark.parametrize("size", [1, 2])
def test_it_learns_generated_samples(size):
    ranks, _, auc = results(size=size)
    assert ranks == size
    assert auc > 0.78


def test_it_is_as_good_as_on_the_embeddings_of_keras():
    assert results()[2] == pytest.approx(results("--embedding_layer", "TF")[2], abs=0.03)


def test_it_learns_lines_of_criteo_with_adam(tmp_path):
    flags = ["--global_batch_size", "64", "--embedding_optimizer", "Adam", "--learning_rate", "0.01"]
    assert results("--data_dir", str(write_criteo(tmp_path, lines=600)), *flags)[2] > 0.95
