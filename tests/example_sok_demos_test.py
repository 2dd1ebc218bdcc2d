"""examples/sok/dense_demo.py and sparse_demo.py have the losses of ordinary variables, on any ranks."""

import functools
import re

import numpy as np
import pytest

from example_support import run_program
from sparse_operation_kit import compat

STEPS = 6


@functools.lru_cache(maxsize=None)
def losses(program, *flags, size=1):
    """The loss of each step of a demo."""
    output = run_program(
        f"sok/{program}", "--iter_num", str(STEPS), "--global_batch_size", "24", *flags, size=size
    )
    found = [float(loss) for loss in re.findall(r"^.*\[INFO\]: step \d+, loss (\S+)$", output, re.MULTILINE)]
    assert len(found) == STEPS, output[-3000:]
    return found


def check_same(left, right, tolerance=2e-5):
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
    assert len(set(left)) == STEPS


@pytest.mark.parametrize(
    "program, optimizer",
    [("dense_demo.py", "plugin_adam"), ("dense_demo.py", "sgd"), ("sparse_demo.py", "adam")],
)
def test_the_losses_are_those_of_ordinary_variables(program, optimizer):
    flags = ["--optimizer", optimizer]
    check_same(losses(program, *flags), losses(program, *flags, "--tables", "tensorflow"))


@pytest.mark.parametrize("program, size", [("dense_demo.py", 3), ("sparse_demo.py", 2)])
def test_ranks_have_the_losses_of_one_process(program, size):
    check_same(losses(program), losses(program, size=size))


@pytest.mark.parametrize("flags", [("--use_hashtable", "0"), ("--dynamic_input", "1")], ids=" ".join)
def test_kinds_of_dense_layers_give_the_same(flags):
    check_same(losses("dense_demo.py", *flags), losses("dense_demo.py"))


@pytest.mark.skipif(not compat.HAS_KERAS_2, reason="the layers are no Keras layers beside Keras 3")
def test_the_functional_model_is_the_subclassed_one():
    flags = ["--slot_num", "3", "--embedding_vec_size", "4", "--combiner", "sum"]
    check_same(losses("sparse_demo.py", *flags, "--functional_api", "1"), losses("sparse_demo.py", *flags))


def test_mixed_precision_with_scaled_losses_is_near():
    half = losses("sparse_demo.py", "--mixed_precision", "1", size=2)
    check_same(half, losses("sparse_demo.py"), tolerance=0.01)
    assert half != losses("sparse_demo.py", size=2)


def test_keys_of_32_bits_give_the_same():
    check_same(losses("sparse_demo.py", "--key_dtype", "uint32"), losses("sparse_demo.py"))


def test_training_starts_from_saved_tables(tmp_path):
    """Two ranks save, and one restores and continues with the trained rows."""
    saved = str(tmp_path / "trained")
    first = losses("sparse_demo.py", "--save_dir", saved, size=2)
    assert np.mean(losses("sparse_demo.py", "--restore_dir", saved)) < 0.8 * np.mean(first)
