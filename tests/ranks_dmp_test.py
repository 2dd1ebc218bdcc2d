"""dist_model_parallel over ranks: outputs and training are those of plain tables on the whole batch."""

import functools

import numpy as np
import pytest

import dmp_model
import ranks
from same_length import zip_equal
from sparse_operation_kit.ranks.communicator import communicator

STEPS = 12

# By number of ranks, the cases that train in sessions with their optimizers, and (case, optimizer) of those
# that train in functions. A rank takes seconds for a case, so the cases are spread over the numbers of ranks:
# each has several numbers, and the ways to slice tables have every optimizer.
CASES = {
    1: (
        {"one table": ["adagrad"], "worker order": ["sgd"], "replicas": ["sgd"]},
        [("one table", "adam")],
    ),
    2: (
        {
            "basic": ["sgd", "adam"],
            "balanced": ["sgd", "adagrad"],
            "optimized": ["adam"],
            "rows": ["lazy adam"],
            "worker order": ["adagrad"],
            "replicas": ["sgd"],
        },
        [("worker order", "adam")],
    ),
    3: (
        {
            "balanced": ["adam"],
            "optimized": ["sgd", "adagrad"],
            "one table": ["sgd"],
            "rows": ["lazy adam"],
            "worker order": ["adam"],
            "rows and replicas": ["sgd", "adagrad"],
        },
        [("rows and replicas", "adam")],
    ),
    4: (
        {"optimized": ["adam"], "one table": ["adam"], "rows and replicas": ["adam"]},
        [("basic", "adagrad")],
    ),
}


def check_training():
    optimizers, _ = CASES[communicator().size]
    return {
        name: dmp_model.trained(dmp_model.CASES[name], of_case, STEPS) for name, of_case in optimizers.items()
    }


def check_training_in_functions():
    _, pairs = CASES[communicator().size]
    return {
        name: {optimizer: dmp_model.trained_in_function(dmp_model.CASES[name], optimizer, STEPS)}
        for name, optimizer in pairs
    }


CHECKS = [check_training, check_training_in_functions]


@pytest.fixture(scope="module")
def launched():
    """By number of ranks and check, the results of each rank; launched when first asked for."""

    @functools.lru_cache(maxsize=None)
    def launch(size):
        if size == 1:
            return {check.__name__: [check()] for check in CHECKS}
        return ranks.run_checks(CHECKS, ranks=size, timeout=300)

    return launch


_PLAIN = {}


def _plain(name, tables):
    """The plain model's results. Initial tables are the same on any number of ranks, so it runs once."""
    if name not in _PLAIN:
        optimizers = sorted(
            {optimizer for _, case, optimizer in _IN_SESSIONS + _IN_FUNCTIONS if case == name}
        )
        results = dmp_model.plain_training(dmp_model.CASES[name], optimizers, tables, STEPS)
        _PLAIN[name] = tables, results
    return _PLAIN[name]


def _assert_is_plain(of_ranks, name, optimizer):
    of_ranks = [results[name][optimizer] for results in of_ranks]
    initial, of_optimizers = _plain(name, of_ranks[0]["initial"])
    first, tables, kernels, losses = of_optimizers[optimizer]
    # Numbers that are infinite or not numbers would be equal to those of any other training that diverges.
    assert np.all(np.isfinite(losses)) and min(losses) < 0.8 * losses[0], losses
    for result in of_ranks:
        for got, want in zip_equal(result["initial"], initial):
            np.testing.assert_array_equal(got, want)
        for got, want in zip_equal(result["first"], first):
            for got_row, sample in zip_equal(got, result["samples"]):
                np.testing.assert_allclose(got_row, want[sample], rtol=1e-6, atol=1e-7)
        for what, want in (("tables", tables), ("kernels", kernels), ("losses", losses)):
            for got_array, want_array in zip_equal(result[what], want):
                np.testing.assert_allclose(got_array, want_array, rtol=1e-5, atol=1e-5)


_IN_SESSIONS = [
    (size, name, optimizer)
    for size, (optimizers, _) in CASES.items()
    for name in optimizers
    for optimizer in optimizers[name]
]
_IN_FUNCTIONS = [(size, *pair) for size, (_, pairs) in CASES.items() for pair in pairs]


@pytest.mark.parametrize(("size", "name", "optimizer"), _IN_SESSIONS)
def test_training_is_that_of_plain_tables(launched, size, name, optimizer):
    _assert_is_plain(launched(size)["check_training"], name, optimizer)


@pytest.mark.parametrize(("size", "name", "optimizer"), _IN_FUNCTIONS)
def test_training_in_functions(launched, size, name, optimizer):
    _assert_is_plain(launched(size)["check_training_in_functions"], name, optimizer)
