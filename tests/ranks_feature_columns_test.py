"""Feature columns over ranks: scopes change nothing, and results do not depend on the number of ranks."""

import functools

import numpy as np
import pytest

import feature_column_sets as sets
import ranks
from device_of_tests import sized
from same_length import zip_equal

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
