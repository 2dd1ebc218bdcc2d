"""dist_model_parallel over ranks: outputs and training are those of plain tables on the whole batch."""

import functools

import numpy as np
import pytest

import dmp_model
import ranks
from same_length import zip_equal
from sparse_operation_kit.core.communicator import communicator

STEPS = 25


# By number of ranks, the cases that train in sessions and those that train in functions.
CASES = {
    1: (list(dmp_model.CASES), ["one table"]),
    2: (list(dmp_model.CASES), ["one table", "worker order"]),
    3: (["optimized", "one table", "rows", "worker order"], []),
    4: (["optimized", "one table", "worker order"], []),
}


def check_training():
    names, _ = CASES[communicator().size]
    return {name: dmp_model.trained(dmp_model.CASES[name], STEPS) for name in names}


def check_training_in_functions():
    _, names = CASES[communicator().size]
    return {name: dmp_model.trained_in_function(dmp_model.CASES[name], STEPS) for name in names}


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
        _PLAIN[name] = tables, dmp_model.plain_training(dmp_model.CASES[name], tables, STEPS)
    return _PLAIN[name]


def _assert_is_plain(of_ranks, name):
    initial, (first, tables, kernels, losses) = _plain(name, of_ranks[0]["initial"])
    for result in of_ranks:
        for got, want in zip_equal(result["initial"], initial):
            np.testing.assert_array_equal(got, want)
        for got, want in zip_equal(result["first"], first):
            for got_row, sample in zip_equal(got, result["samples"]):
                np.testing.assert_allclose(got_row, want[sample], rtol=1e-6, atol=1e-7)
        for what, want in (("tables", tables), ("kernels", kernels), ("losses", losses)):
            for got_array, want_array in zip_equal(result[what], want):
                np.testing.assert_allclose(got_array, want_array, rtol=1e-5, atol=1e-5)


def _each(position):
    """(ranks, case) of CASES."""
    pairs = [(size, name) for size, names in CASES.items() for name in names[position]]
    return pytest.mark.parametrize(("size", "name"), pairs)


@_each(0)
def test_training_is_that_of_plain_tables(launched, size, name):
    _assert_is_plain([result[name] for result in launched(size)["check_training"]], name)


@_each(1)
def test_training_in_functions(launched, size, name):
    _assert_is_plain([result[name] for result in launched(size)["check_training_in_functions"]], name)
