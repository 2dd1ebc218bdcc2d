"""examples/deeprec/estimator_movielens.py trains and evaluates on files in MovieLens' format."""

import pytest
import tensorflow as tf

import saved_files
from example_support import run_deeprec, write_movielens

if not hasattr(tf, "estimator"):
    pytest.skip(f"TensorFlow {tf.__version__} has no Estimator", allow_module_level=True)


def test_ranks_learn_the_taste_in_the_files(tmp_path):
    flags = ["--data_dir", str(write_movielens(tmp_path / "data", ratings=600)), "--steps", "60"]
    ranks, first, last = run_deeprec(
        "estimator_movielens.py",
        *flags,
        "--model_dir",
        str(tmp_path / "model"),
        "--batch_size",
        "64",
        size=2,
    )
    assert ranks == 2
    assert first < 0.8 and last > 0.95
    assert saved_files.data_files(tmp_path / "model" / "model.ckpt-60")


def test_it_generates_data():
    ranks, first, last = run_deeprec("estimator_movielens.py", "--steps", "200", "--batch_size", "256")
    assert ranks == 1
    assert first < 0.7 and last > 0.9
