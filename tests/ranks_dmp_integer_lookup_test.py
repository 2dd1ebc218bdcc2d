"""IntegerLookup over ranks numbers keys as one process does that gets the ranks' batches in turn."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit.dist_model_parallel as dmp
from sparse_operation_kit.ranks.communicator import communicator

# TensorFlow 1.15 executes eagerly only if it is asked to.
tf.compat.v1.enable_v2_behavior()

STEPS = 5
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
        for step in range(STEPS):
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
    return [numbers(batch(step, communicator().rank)).numpy() for step in range(STEPS)]


CHECKS = [check_sessions, check_functions]


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
    results = ranks.run_checks(CHECKS, ranks=size)
    for name, max_tokens in SIZES.items():
        reference = Reference(max_tokens)
        for step in range(STEPS):
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
