"""Feature columns over ranks: scopes change nothing, and results do not depend on the number of ranks."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import feature_column_sets as sets
import harness
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit import feature_columns

STEPS = sized(50, 10)
SAMPLES = 12  # of a step over all ranks
OPTIMIZERS = ("adagrad", "adam", "sgd")


def global_steps(recipes, seed):
    rng = np.random.default_rng(seed)
    return [sets.batch(recipes, rng, SAMPLES) for _ in range(STEPS)]


def part_of(values, rank, size):
    """A rank's samples. Ranks have different numbers: the last has the most; of 3, the first has few."""
    ends = np.rint(SAMPLES * (np.arange(size + 1) / size) ** 1.5).astype(int)
    return {key: value[ends[rank] : ends[rank + 1]] for key, value in values.items()}


def train_both_ways(seeds):
    """By seed, the runs without and with scopes, on this rank's part of the batches."""
    import horovod.tensorflow as hvd

    hvd.init()
    runs = {}
    for seed in seeds:
        recipes = sets.random_recipes(seed)
        steps = [part_of(values, hvd.rank(), hvd.size()) for values in global_steps(recipes, seed)]
        optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)]
        runs[seed] = [sets.train(recipes, scoped, steps, optimizer, SAMPLES) for scoped in (False, True)]
    return runs


@functools.lru_cache(maxsize=None)
def train_in_one_process(seed):
    recipes = sets.random_recipes(seed)
    return sets.train(recipes, True, global_steps(recipes, seed), OPTIMIZERS[seed % len(OPTIMIZERS)], SAMPLES)


@pytest.mark.parametrize(("size", "seeds"), sized([(1, (301,)), (2, (301, 306)), (3, (303,))], [(2, (301,))]))
def test_any_number_of_ranks_trains_the_same_with_and_without_scopes(size, seeds):
    results = ranks.run(train_both_ways, seeds, ranks=size, timeout=240)
    for seed in seeds:
        recipes = sets.random_recipes(seed)
        for alone, grouped in (result[seed] for result in results):
            np.testing.assert_array_equal(grouped.outputs[0], alone.outputs[0])
            if any(recipe.partner for recipe in recipes):
                grouped.assert_close(alone)
            else:
                grouped.assert_equal(alone)
        together = [np.concatenate(parts) for parts in zip_equal(*(run[seed][1].outputs for run in results))]
        variables = results[0][seed][1].variables
        want = train_in_one_process(seed)
        sets.Run(together, variables).assert_close(want)
        for name, value in want.variables.items():
            np.testing.assert_allclose(variables[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


def count_exchanges(counts):
    """By number of columns, the exchanges of a step and the layer's shape."""
    import horovod.tensorflow as hvd

    hvd.init()
    result = {}
    for count in counts:
        with harness.graph_and_session() as session:
            of_init = len(exchanges(session.graph))
            with feature_columns.group_embedding_column_scope("all"):
                columns = [
                    sets.fc.embedding_column(
                        feature_columns.categorical_column_with_embedding(f"f{number}", tf.int64), 4
                    )
                    for number in range(count)
                ]
            keys = {f"f{number}": tf.constant([[1, 2], [-1, 3]], tf.int64) for number in range(count)}
            layer = sets.fc.input_layer(keys, columns)
            step = sok.DistributedOptimizer(sets.OPTIMIZERS["adagrad"](), op="sum").minimize(
                tf.reduce_sum(layer)
            )
            harness.initialize(session)
            shape = session.run([layer, step])[0].shape
            result[count] = (shape, len(exchanges(session.graph)) - of_init)
    return result


def exchanges(graph):
    return [op for op in graph.get_operations() if op.type == "SokExchange"]


def test_a_group_of_any_size_takes_three_exchanges():
    counts = sized((1, 26, 107), (1, 26))
    for result in ranks.run(count_exchanges, counts, ranks=2):
        assert result == {count: ((2, 4 * count), 3) for count in counts}
