"""dist_model_parallel over ranks: outputs and training are those of plain tables on the whole batch."""

import functools

import numpy as np
import pytest

import dmp_model
import ranks
from sparse_operation_kit.core.communicator import communicator

STEPS = 25


# The cases that also run with four ranks, and in functions with up to two.
ALSO = ("optimized", "one table", "worker order")


def check_training():
    names = ALSO if communicator().size == 4 else dmp_model.CASES
    return {name: dmp_model.trained(dmp_model.CASES[name], STEPS) for name in names}


def check_training_in_functions():
    if communicator().size > 2:
        return {}
    return {name: dmp_model.trained_in_function(dmp_model.CASES[name], STEPS) for name in ALSO}


CHECKS = [check_training, check_training_in_functions]


@pytest.fixture(scope="module")
def launched():
    """By number of ranks and check, the results of each rank; launched when first asked for."""

    @functools.cache
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
        for got, want in zip(result["initial"], initial, strict=True):
            np.testing.assert_array_equal(got, want)
        for got, want in zip(result["first"], first, strict=True):
            for got_row, sample in zip(got, result["samples"], strict=True):
                np.testing.assert_allclose(got_row, want[sample], rtol=1e-6, atol=1e-7)
        for what, want in (("tables", tables), ("kernels", kernels), ("losses", losses)):
            for got_array, want_array in zip(result[what], want, strict=True):
                np.testing.assert_allclose(got_array, want_array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", dmp_model.CASES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_training_is_that_of_plain_tables(launched, size, name):
    _assert_is_plain([result[name] for result in launched(size)["check_training"]], name)


@pytest.mark.parametrize("name", ALSO)
def test_training_with_four_ranks(launched, name):
    _assert_is_plain([result[name] for result in launched(4)["check_training"]], name)


@pytest.mark.parametrize("name", ALSO)
@pytest.mark.parametrize("size", [1, 2])
def test_training_in_functions(launched, size, name):
    _assert_is_plain([result[name] for result in launched(size)["check_training_in_functions"]], name)
