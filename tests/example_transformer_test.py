# Tags: slow
# Not on GPUs: a program; the tests gpu_* have one
"""examples/transformer: losses of a cut table are those of a whole one on any ranks, and it learns."""

import functools
import json
import re
import sys
import tempfile

import numpy as np
import pytest

from example_support import EXAMPLES, run_program

sys.path.insert(0, str(EXAMPLES / "transformer"))
import number_words  # noqa: E402 - needs the path

FOLDER = "transformer"
# Columns that three ranks do not divide.
SMALL = (
    "--digits 3 --rows 60 --columns 25 --width 16 --heads 2 --global_batch_size 24 --warmup_steps 5".split()
)
STEPS = 15


@functools.lru_cache(maxsize=None)
def results(table, size, *flags, optimize=False):
    """The results of a run, with what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        flags = [*SMALL, "--train_steps", str(STEPS), "--evaluated", "12", *flags]
        flags += ["--table", table, "--output_dir", folder]
        printed = run_program(f"{FOLDER}/train_transformer.py", *flags, size=size, optimize=optimize)
        with open(f"{folder}/results.json", encoding="utf-8") as file:
            return {**json.load(file), "printed": printed}


@pytest.mark.parametrize("table, size", [("cut", 1), ("cut", 3), ("whole", 2)])
def test_losses_are_those_of_a_whole_table_on_one_rank(table, size):
    expected, run = results("whole", 1), results(table, size)
    assert len(expected["losses"]) == STEPS and expected["losses"][-1] < 0.8 * expected["losses"][0]
    np.testing.assert_allclose(run["losses"], expected["losses"], rtol=0, atol=1e-5)
    assert run["accuracy"] == expected["accuracy"]


def test_hashed_ids_have_equal_losses_on_any_ranks():
    assert np.abs(number_words.hashed_ids().astype(np.float64)).min() > 2**32
    expected, run = results("hashed", 1), results("hashed", 2)
    assert expected["losses"][-1] < 0.8 * expected["losses"][0]
    np.testing.assert_allclose(run["losses"], expected["losses"], rtol=0, atol=1e-5)
    rows = [size // (25 * 3 * 4) for size in run["table_bytes"]]
    assert min(rows) > 0 and sum(rows) == expected["table_bytes"][0] // (25 * 3 * 4)


def test_ranks_share_the_memory_of_a_cut_table():
    whole = 60 * 25 * 4 * 3
    assert results("cut", 1)["table_bytes"] == [whole]
    assert results("cut", 3)["table_bytes"] == [60 * columns * 4 * 3 for columns in (9, 8, 8)]
    assert results("whole", 2)["table_bytes"] == [whole, whole]
    assert len({size for n in (1, 3) for size in results("cut", n)["other_bytes"]}) == 1


def test_it_learns_to_translate_numbers_that_it_has_not_seen():
    sizes = ["--width", "32", "--global_batch_size", "48", "--evaluated", "60"]
    sizes += ["--learning_rate", "0.01", "--warmup_steps", "40", "--train_steps", "200"]
    run = results("cut", 1, *sizes, optimize=True)
    assert run["accuracy"] > 0.6
    shown = re.findall(r"^(\d+): (.*)$", run["printed"], re.MULTILINE)
    right = [number_words.in_words(int(number)) == words.split() for number, words in shown]
    assert len(shown) == 5 and sum(right) >= 2


@pytest.mark.parametrize(
    "number, words",
    [
        (0, "zero"),
        (13, "thirteen"),
        (20, "twenty"),
        (47, "forty seven"),
        (100, "one hundred"),
        (1947, "one thousand nine hundred forty seven"),
        (30000, "thirty thousand"),
        (805012, "eight hundred five thousand twelve"),
    ],
)
def test_words_of_numbers(number, words):
    assert " ".join(number_words.in_words(number)) == words


def test_every_number_has_words_of_its_own():
    words = [" ".join(number_words.in_words(number)) for number in range(10_000)]
    assert len(set(words)) == len(words)
    assert max(len(text.split()) for text in words) + 1 == number_words.longest_translation(4)
    batches = number_words.Batches(4, seed=3)
    assert len(batches.trained) + len(batches.held_out) == 10_000
    assert 800 < len(batches.held_out) < 1200
    assert not np.isin(batches.draw(5000), batches.held_out).any()
    tokens = batches.targets(np.array([1947, 5]))
    texts = [[number_words.VOCABULARY[token] for token in row] for row in tokens]
    pad, end = number_words.PAD, number_words.END
    assert texts[0] == "one thousand nine hundred forty seven".split() + [end] + [pad] * (tokens.shape[1] - 7)
    assert texts[1] == ["five", end] + [pad] * (tokens.shape[1] - 2)


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--rows", "42"], "--rows must be at least 43, not 42"),
        (["--heads", "3"], "--width must be a multiple of --heads, which is 3, not 64"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(flags, message):
    with pytest.raises(AssertionError, match=message):
        run_program(f"{FOLDER}/train_transformer.py", *flags)
