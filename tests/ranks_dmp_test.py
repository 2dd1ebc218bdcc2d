"""dist_model_parallel over ranks: training is that of plain tables on the whole batch.

IntegerLookup numbers keys as one process does that gets the ranks' batches in turn."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import dmp_model
import harness
import ranks
import sparse_operation_kit.dist_model_parallel as dmp
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
        harness.assert_equal_arrays(result["initial"], initial)
        for got, want in zip_equal(result["first"], first):
            for got_row, sample in zip_equal(got, result["samples"]):
                np.testing.assert_allclose(got_row, want[sample], rtol=1e-6, atol=1e-7)
        for what, want in (("tables", tables), ("kernels", kernels), ("losses", losses)):
            harness.assert_close_arrays(result[what], want, rtol=1e-5, atol=1e-5)


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


LOOKUPS = 5
SIZES = {"small": 70, "large": 500}


def batch(step, rank):
    """Keys of any number, many of which other ranks have too; some ranks have none."""
    return harness.zipf_keys(np.random.default_rng([step, rank]), 80 * ((step + rank) % 3), 400, 1.05)


def check_sessions():
    """(numbers of each step, vocabularies and counts) of two layers."""
    rank = communicator().rank
    with harness.graph_and_session() as session:
        keys = tf.compat.v1.placeholder(tf.int64, [None])
        training = tf.compat.v1.placeholder_with_default(True, [])
        # Built in an order that differs between ranks.
        names = sorted(SIZES, reverse=rank % 2 == 1)
        layers = {name: dmp.IntegerLookup(SIZES[name], name=name) for name in names}
        numbers = {name: layers[name](keys, training=training) for name in names}
        known = layers["large"](keys, training=False)
        harness.initialize(session)
        results = []
        for step in range(LOOKUPS):
            results.append(session.run(numbers, {keys: batch(step, rank)}))
            # All ranks run the exchange, and nothing is added.
            session.run(numbers, {keys: batch(99, rank), training: False})
        # One rank alone may look up what is known.
        if rank == 0:
            np.testing.assert_array_equal(session.run(known, {keys: batch(4, 0)}), results[4]["large"])
        state = {name: (layers[name].get_vocabulary(), layers[name].get_counts()) for name in SIZES}
        return results, state


def check_functions():
    layer = dmp.IntegerLookup(SIZES["small"], name="small")
    numbers = tf.function(layer, input_signature=[tf.TensorSpec([None], tf.int64)])
    return [numbers(batch(step, communicator().rank)).numpy() for step in range(LOOKUPS)]


class Reference:
    """The layer of one process, in a dict."""

    def __init__(self, max_tokens):
        self.max_tokens, self.number_of, self.counts = max_tokens, {}, np.zeros(max_tokens + 1, np.int64)

    def __call__(self, keys):
        for key in keys.tolist():
            if len(self.number_of) < self.max_tokens:
                self.number_of.setdefault(key, len(self.number_of) + 1)
            self.counts[self.number_of.get(key, 0)] += 1

    def numbers(self, keys):
        """The present numbers of keys."""
        return [self.number_of.get(key, 0) for key in keys.tolist()]


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_number_keys_as_one_process(size):
    results = ranks.run_checks([check_sessions, check_functions], ranks=size)
    for name, max_tokens in SIZES.items():
        reference = Reference(max_tokens)
        for step in range(LOOKUPS):
            reference(np.concatenate([batch(step, rank) for rank in range(size)]))
            for rank in range(size):
                of_session = results["check_sessions"][rank][0][step][name]
                # A key that ranks have in one step has one number, which the first of them decides.
                assert of_session.tolist() == reference.numbers(batch(step, rank))
                if name == "small":
                    of_function = results["check_functions"][rank][step]
                    np.testing.assert_array_equal(of_function, of_session)
        for rank in range(size):
            vocabulary, counts = results["check_sessions"][rank][1][name]
            assert vocabulary == [-1, *reference.number_of]
            assert counts.tolist() == reference.counts[: len(vocabulary)].tolist()
        assert (len(reference.number_of) == max_tokens) == (name == "small")
