"""Helpers for tests of the example trainer: small files in the published formats, reading and running.

As a program, example_support.py PROGRAM FLAG..., runs another one, whose sessions do not optimize graphs.
"""

from __future__ import annotations

import json
import os
import pathlib
import runpy
import sys

import numpy as np
import tensorflow as tf

import forked
import ranks
from harness import without_optimizations

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
RUNS_PROGRAM = pathlib.Path(__file__).with_name("example_runs_program.py")
GENRES = 19
# Sizes that keep a run on these files short, with both kinds of tables.
SMALL_FLAGS = ["--batch_size", "32", "--dim", "4", "--tensorflow_rows", "3000"]
# One layer of each kind, as building layers takes longer than training them.
SMALL_FLAGS += ["--hidden", "16", "--cross_layers", "1"]


def read_part(dataset: object, part: str, batch_size: int = 7, shuffle_seed: int = 1) -> list[dict]:
    """The batches of one pass over `part`, "training" or "held_out", as NumPy arrays.

    The data set must have been made in the current graph.
    """
    if part == "training":
        batches = dataset.training(batch_size, tf.constant(shuffle_seed, tf.int64))
    else:
        batches = dataset.held_out(batch_size)
    iterator = tf.compat.v1.data.make_initializable_iterator(batches)
    batch = iterator.get_next()
    result = []
    with tf.compat.v1.Session() as session:
        session.run(iterator.initializer)
        while True:
            try:
                result.append(session.run(batch))
            except tf.errors.OutOfRangeError:
                return result


def joined(batches: list[dict]) -> dict[str, np.ndarray]:
    """All samples of a list of batches."""
    return {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}


def id_of(field: str, value: str) -> int:
    """The id that the readers give to a value of a field."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return int(session.run(tf.bitcast(tf.fingerprint([f"{field}={value}"]), tf.int64))[0])


def write_movielens(
    folder: pathlib.Path, ratings: int = 300, users: int = 20, items: int = 15
) -> pathlib.Path:
    """Writes u.data, u.user and u.item. The taste can be learnt: users like items with even ids."""
    generator = np.random.default_rng(5)
    folder.mkdir(parents=True, exist_ok=True)
    jobs = ("writer", "student", "other")
    user_lines = [
        f"{u}|{18 + u % 50}|{'MF'[u % 2]}|{jobs[u % 3]}|{10000 + 111 * u}" for u in range(1, users + 1)
    ]
    item_lines = []
    for item in range(1, items + 1):
        flags = "|".join(str(int(g in (item % GENRES, (item * 7) % GENRES))) for g in range(GENRES))
        item_lines.append(f"{item}|Café {item} (1995)|01-Jan-{1980 + item}||http://x/{item}|{flags}")
    rating_lines = []
    for line in range(ratings):
        user, item = generator.integers(1, users + 1), generator.integers(1, items + 1)
        rating = 5 if item % 2 == 0 else 2
        rating_lines.append(f"{user}\t{item}\t{rating}\t{880000000 + line}")
    (folder / "u.user").write_text("\n".join(user_lines) + "\n", encoding="utf-8")
    (folder / "u.item").write_text("\n".join(item_lines) + "\n", encoding="latin-1")
    (folder / "u.data").write_text("\n".join(rating_lines) + "\n", encoding="utf-8")
    return folder


def census_line(age: int = 39, workclass: str = "Private", gain: int = 0, label: str = "<=50K") -> str:
    """One line of adult.data."""
    return (
        f"{age}, {workclass}, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
        f"{gain}, 0, 40, United-States, {label}"
    )


def write_census(folder: pathlib.Path, training: int = 300, held_out: int = 100) -> pathlib.Path:
    """Writes adult.data and adult.test (with its header and dots). People above 45 earn more."""
    generator = np.random.default_rng(6)
    folder.mkdir(parents=True, exist_ok=True)

    def lines(count: int, dot: str) -> list[str]:
        ages = generator.integers(20, 70, count)
        return [census_line(age, label=(">50K" if age > 45 else "<=50K") + dot) for age in ages]

    (folder / "adult.data").write_text("\n".join(lines(training, "")) + "\n\n", encoding="utf-8")
    test = ["|1x3 Cross validator", *lines(held_out, ".")]
    (folder / "adult.test").write_text("\n".join(test) + "\n\n", encoding="utf-8")
    return folder


def criteo_line(label: int = 0, first_integer: str = "1", first_category: str = "68fd1e64") -> str:
    """One line of train.txt, with a missing integer and a missing category."""
    integers = [first_integer, "", "-1"] + ["5"] * 10
    categories = [first_category, ""] + [f"{column:08x}" for column in range(24)]
    return "\t".join([str(label), *integers, *categories])


def write_criteo(folder: pathlib.Path, lines: int = 300) -> pathlib.Path:
    """Writes a train.txt whose clicks depend on the first category."""
    generator = np.random.default_rng(7)
    folder.mkdir(parents=True, exist_ok=True)
    clicks = generator.integers(0, 2, lines)
    text = [
        criteo_line(click, str(generator.integers(0, 100)), f"{click * 16 + generator.integers(0, 4):08x}")
        for click in clicks
    ]
    (folder / "train.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
    return folder


def data_flags(dataset: str, folder: pathlib.Path) -> list[str]:
    """Writes a small data set under `folder`; returns the flags that select it."""
    if dataset == "synthetic":
        return ["--samples", "500", "--held_out_samples", "200"]
    write = {"movielens": write_movielens, "census": write_census, "criteo": write_criteo}[dataset]
    return ["--dataset", dataset, "--data_dir", str(write(folder / "data"))]


def run_all(runs: list[list[str]]) -> None:
    """Runs the example with each list of flags, all in one separate process."""
    forked.succeeded(forked.run(RUNS_PROGRAM, json.dumps(runs)))


def results_of(folder: pathlib.Path) -> dict:
    """The results.json of a run that wrote to `folder`."""
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def run_program(program: str, *flags: str, size: int = 1, optimize: bool = True) -> str:
    """Runs a program, given by its path under examples/, on `size` ranks; returns what it prints.

    Without `optimize`, TensorFlow does not optimize the graphs of sessions that have no configuration.
    """
    command = [str(EXAMPLES / program), *flags]
    if not optimize:
        command.insert(0, __file__)
    if size == 1:
        return forked.succeeded(forked.run(*command))
    done = ranks.launch(*command, ranks=size, timeout=200)
    assert done.returncode == 0 and not done.timed_out, done.report()
    return "".join(done.outputs)


def check_that_both_learn(folder, flag, values, more=()):
    """Trains with each of two `values` of `flag`, and checks that both learn equally well."""
    data = ["--dataset", "criteo", "--data_dir", str(write_criteo(folder / "data", lines=600))]
    flags = [*SMALL_FLAGS, *data, "--epochs", "5", "--learning_rate", "0.01", *more]
    run_all([[*flags, flag, value, "--output_dir", str(folder / value)] for value in values])
    aucs = [results_of(folder / value)["evaluations"][-1]["auc"] for value in values]
    assert min(aucs) > 0.95
    assert abs(aucs[0] - aucs[1]) < 0.03


class _Session(tf.compat.v1.Session):
    """A session without optimizations, for programs that give it no configuration."""

    def __init__(self, **arguments):
        super().__init__(config=without_optimizations(), **arguments)


if __name__ == "__main__":
    tf.compat.v1.Session = _Session
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
