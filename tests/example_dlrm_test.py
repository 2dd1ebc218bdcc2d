# Tags: slow
# Not on GPUs: a program; the tests gpu_* have one
"""The programs of examples/sok: what they learn, and the losses of ordinary variables."""

import functools
import re

import numpy as np
import pytest

import forked
from example_support import EXAMPLES, run_program, write_criteo
from sparse_operation_kit import compat

SMALL = ["--largest_vocabulary", "2000", "--train_steps", "120", "--validation_interval", "120"]


@functools.lru_cache(maxsize=None)
def area_of(program, *flags, size=1):
    """The last AUC."""
    output = run_program(program, *SMALL, *flags, size=size)
    found = re.findall(r"^ranks (\d+), step 120, loss (\S+), held-out AUC (\S+)$", output, re.MULTILINE)
    assert len(found) == 1 and int(found[0][0]) == size, output[-3000:]
    return float(found[0][2])


OVER_RANKS = ["--embedding_layer", "DMP"]
# Tables over ranks may be cut in all ways.
CUT = [*OVER_RANKS, "--row_slice_threshold", "15000", "--column_slice_threshold", "3000"]
CUT += ["--data_parallel_threshold", "100"]


@pytest.mark.parametrize("flags, size", [(OVER_RANKS, 1), (CUT, 2), ([], 1), ([], 2)])
def test_it_learns_generated_samples(flags, size):
    assert area_of("sok/dlrm.py", *flags, size=size) > 0.78


@pytest.mark.parametrize(
    "flags",
    [
        [*OVER_RANKS, "--strategy", "basic"],
        ["--embedding_optimizer", "Adam", "--learning_rate", "0.01"],
    ],
)
def test_it_learns_lines_of_criteo(tmp_path, flags):
    data = ["--data_dir", str(write_criteo(tmp_path, lines=600)), "--global_batch_size", "64"]
    assert area_of("sok/dlrm.py", *data, *flags) > 0.95


def test_soks_is_as_good_as_on_the_embeddings_of_keras():
    of_keras = area_of("sok/dlrm.py", "--embedding_layer", "TF")
    assert area_of("sok/dlrm.py") == pytest.approx(of_keras, abs=0.03)


def test_a_batch_that_ranks_do_not_divide_is_refused():
    with pytest.raises(AssertionError, match="must be a multiple of the 2 ranks, not 511"):
        run_program("sok/dlrm.py", "--global_batch_size", "511", size=2)


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


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory):
    """(losses of sparse_demo.py on two ranks, the folder to which they saved the tables)."""
    saved = str(tmp_path_factory.mktemp("saved") / "trained")
    return losses("sparse_demo.py", "--save_dir", saved, size=2), saved


@pytest.mark.parametrize(
    "program, flags",
    [
        ("dense_demo.py", []),  # SOK's Adam
        ("dense_demo.py", ["--optimizer", "sgd"]),
        ("sparse_demo.py", ["--optimizer", "adam"]),
    ],
)
def test_the_losses_are_those_of_ordinary_variables(program, flags):
    check_same(losses(program, *flags), losses(program, *flags, "--tables", "tensorflow"))


def test_ranks_have_the_losses_of_one_process(of_two_ranks):
    check_same(losses("dense_demo.py"), losses("dense_demo.py", size=3))
    check_same(losses("sparse_demo.py"), of_two_ranks[0])


@pytest.mark.parametrize("flags", [("--use_hashtable", "0"), ("--dynamic_input", "1")], ids=" ".join)
def test_kinds_of_dense_layers_give_the_same(flags):
    check_same(losses("dense_demo.py", *flags), losses("dense_demo.py"))


@pytest.mark.skipif(not compat.HAS_KERAS_2, reason="the layers are no Keras layers beside Keras 3")
def test_the_functional_model_is_the_subclassed_one():
    flags = ["--slot_num", "3", "--embedding_vec_size", "4", "--combiner", "sum"]
    check_same(losses("sparse_demo.py", *flags, "--functional_api", "1"), losses("sparse_demo.py", *flags))


def test_mixed_precision_with_scaled_losses_is_near(of_two_ranks):
    half = losses("sparse_demo.py", "--mixed_precision", "1", size=2)
    check_same(half, losses("sparse_demo.py"), tolerance=0.01)
    assert half != of_two_ranks[0]


def test_keys_of_32_bits_give_the_same():
    check_same(losses("sparse_demo.py", "--key_dtype", "uint32"), losses("sparse_demo.py"))


def test_training_starts_from_saved_tables(of_two_ranks):
    """Two ranks save, and one restores and continues with the trained rows."""
    first, saved = of_two_ranks
    assert np.mean(losses("sparse_demo.py", "--restore_dir", saved)) < 0.8 * np.mean(first)


@pytest.mark.parametrize(
    "program, flags, message",
    [
        ("sparse_demo.py", ["--slot_num", "3", "2", "1"], "need as many values as there are tables"),
        ("dense_demo.py", ["--slot_num", "3", "2", "--embedding_vec_size", "4", "8"], "need one value"),
        ("dense_demo.py", ["--tables", "tensorflow", "--save_dir", "x"], "need --tables sok"),
        ("sparse_demo.py", ["--functional_api", "1"], "needs --tables sok, --key_dtype int64 and one table"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(program, flags, message):
    done = forked.run(EXAMPLES / "sok" / program, *flags)
    assert done.returncode == 2 and message in done.stderr
