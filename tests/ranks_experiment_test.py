"""sparse_operation_kit.experiment over ranks: the same results as one process with the whole batch."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit import experiment as sok
from sparse_operation_kit.checkpoint import open_checkpoint, problems
from sparse_operation_kit.compat.tensors import with_values
from sparse_operation_kit.ranks.communicator import communicator

# The numbers of rows are not multiples of the numbers of ranks.
ROWS, DIMS, COMBINERS = (17, 7, 11), (3, 5, 1), ("sum", "mean", "sum")
BATCH = 12
RATE = 0.25
SIZES = sized([1, 3, 2], [3, 2])  # numbers of ranks, each of which loads what the one before has saved


def _values():
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in zip_equal(ROWS, DIMS)]


def _batch():
    """By table, (lengths of the bags, ids, weights) of the whole batch."""
    rng = np.random.default_rng(1)
    batch = []
    for rows in ROWS:
        lengths = rng.integers(1, 4, BATCH)
        batch.append((lengths, rng.integers(0, rows, lengths.sum()), rng.uniform(0.5, 2, lengths.sum())))
    return batch


def _part(rank, size):
    """By table, (ids, weights) of this rank's bags."""
    bags = slice(BATCH * rank // size, BATCH * (rank + 1) // size)
    parts = []
    for lengths, ids, weights in _batch():
        taken = slice(lengths[: bags.start].sum(), lengths[: bags.stop].sum())
        of_rank = tf.RaggedTensor.from_row_lengths(tf.constant(ids[taken]), lengths[bags])
        parts.append((of_rank, with_values(of_rank, tf.constant(weights[taken], tf.float32))))
    return zip_equal(*parts)


def _variables(size):
    values = _values()
    last = f"localized:{size - 1}"
    return [
        sok.Variable(values[0], name="spread"),
        sok.Variable(values[1], mode=last, name="placed"),
        sok.DynamicVariable(DIMS[2], name="grown", mode=last),
    ]


def _initial_rows(mode):
    """All rows of variables whose initial values scale with the number of rows, for the graph's seed."""
    glorot = tf.compat.v1.glorot_uniform_initializer(seed=5)
    variables = [
        sok.Variable(shape=[17, 3], initializer=glorot, mode=one, name=name)
        for one, name in ((None, "spread_glorot"), (mode, "placed_glorot"))
    ]
    return [sok.all2all_dense_embedding(variable, tf.range(17)) for variable in variables]


def _train(folder):
    """Trains a step and dumps; returns this rank's outputs, gradients and rows."""
    sok.init()
    rank, size = communicator().rank, communicator().size
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
        tf.compat.v1.set_random_seed(7)
        variables = _variables(size)
        fill = sok.assign(variables[2], np.arange(ROWS[2]), _values()[2])
        ids, weights = _part(rank, size)
        outputs = sok.lookup_sparse(variables, ids, weights, COMBINERS)
        loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
        optimizer = sok.SGD(lr=RATE)
        step = optimizer.apply_gradients(zip_equal(tf.gradients(loss, variables), variables))
        dense = sok.all2all_dense_embedding(variables[0], tf.constant([[rank, 16], [5, rank]]))
        reads = [variables[0].read_value(), variables[1].read_value(), *sok.export(variables[2])]
        sizes = [variable.total_count()[0] for variable in variables]
        dump = sok.dump(folder, variables)
        initial = _initial_rows(f"localized:{size - 1}")
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(fill)
        results = {"outputs": session.run(outputs), "dense": session.run(dense)}
        session.run(step)
        results["reads"], results["initial"] = session.run([reads, initial])
        results["shapes"] = [variable.shape.as_list() for variable in variables]
        results["sizes"] = session.run(sizes)
        assert session.run(dump) == b"OK"
    return results


def _load(folder):
    """All rows of the variables after a load."""
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
        variables = _variables(communicator().size)
        load = sok.load(folder, variables)
        rows = [
            sok.all2all_dense_embedding(variable, tf.range(rows, dtype=tf.int64))
            for variable, rows in zip_equal(variables, ROWS)
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(load) == b"OK"
        return session.run(rows)


def _expected():
    """The outputs for the whole batch and the tables after a step, by TensorFlow's ops; `_initial_rows`."""
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
        tf.compat.v1.set_random_seed(7)
        variables = [tf.compat.v1.Variable(value, use_resource=True) for value in _values()]
        ids, weights = _part(0, 1)
        outputs = [
            tf.nn.embedding_lookup_sparse(variable, of.to_sparse(), weight.to_sparse(), combiner=combiner)
            for variable, of, weight, combiner in zip_equal(variables, ids, weights, COMBINERS)
        ]
        loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
        step = tf.compat.v1.train.GradientDescentOptimizer(RATE).minimize(loss, var_list=variables)
        initial = _initial_rows("localized:0")
        session.run(tf.compat.v1.global_variables_initializer())
        before = session.run(outputs)
        session.run(step)
        return before, session.run(variables), session.run(initial)


@pytest.fixture(scope="module")
def expected():
    return _expected()


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """By number of ranks, the folder in which they saved, and the results of their checks."""
    found = {}
    for size, before in zip(SIZES, [None, *SIZES]):
        folder = str(tmp_path_factory.mktemp("saved"))
        checks = [(_train, folder), (_save, folder), _look_up_a_bad_key]
        if before is not None:
            checks += [(_load, found[before][0]), (_restore, found[before][0])]
        found[size] = folder, ranks.run_checks(checks, ranks=size)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_ranks_train_as_one_process(launched, expected, size):
    outputs, trained, initial = expected
    results = launched[size][1]["_train"]
    for table in range(3):
        got = np.concatenate([result["outputs"][table] for result in results])
        np.testing.assert_allclose(got, outputs[table], rtol=1e-5, atol=1e-6)
    grown = {}
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result["initial"], initial)
        np.testing.assert_array_equal(result["dense"], _values()[0][np.array([[rank, 16], [5, rank]])])
        spread, placed, keys, rows = result["reads"]
        np.testing.assert_allclose(spread, trained[0][rank::size], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(placed, trained[1][: 7 if rank == size - 1 else 0], rtol=1e-5, atol=1e-6)
        assert sorted(keys.tolist()) == (list(range(ROWS[2])) if rank == size - 1 else [])
        assert result["sizes"] == [
            len(range(rank, ROWS[0], size)),
            *([7, 11] if rank == size - 1 else [0, 0]),
        ]
        grown.update(zip_equal(keys.tolist(), rows))
        assert result["shapes"][:2] == [list(spread.shape), list(placed.shape)]
    np.testing.assert_allclose([grown[key] for key in range(ROWS[2])], trained[2], rtol=1e-5, atol=1e-6)


def test_a_dump_loads_on_another_number_of_ranks(launched, expected):
    of_ranks = [loaded for size in SIZES[1:] for loaded in launched[size][1]["_load"]]
    for loaded in [*of_ranks, _load(launched[SIZES[-1]][0])]:
        harness.assert_close_arrays(loaded, expected[1], rtol=1e-5, atol=1e-6)


def _saved(modes):
    """A variable of each mode, and all rows of each."""
    variables = [
        sok.Variable(values, mode=mode, name=f"table{number}")
        for number, (values, mode) in enumerate(zip_equal(_values(), modes))
    ]
    everything = [
        sok.all2all_dense_embedding(variable, tf.range(rows, dtype=tf.int64))
        for variable, rows in zip_equal(variables, ROWS)
    ]
    return variables, everything


def _save(folder):
    """Trains a step and saves; returns all rows."""
    modes = [None, f"localized:{communicator().size - 1}", "localized:0"]
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
        variables, rows = _saved(modes)
        loss = tf.add_n([tf.reduce_sum(tf.square(one[::2])) for one in rows])
        step = tf.compat.v1.train.AdagradOptimizer(RATE).minimize(loss, var_list=variables)
        saver = tf.compat.v1.train.Saver()
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step)
        saver.save(session, f"{folder}/model.ckpt")
        return session.run(rows)


def _restore(folder):
    """Returns all rows after a restore, and the keys that this rank holds."""
    modes = ["localized:1", None, f"localized:{communicator().size - 1}"]
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
        variables, rows = _saved(modes)
        saver = tf.compat.v1.train.Saver()
        session.run(tf.compat.v1.global_variables_initializer())
        saver.restore(session, f"{folder}/model.ckpt")
        return session.run([rows, [sok.export(variable)[0] for variable in variables]])


@pytest.mark.parametrize(("size", "other"), list(zip(SIZES, SIZES[1:])))
def test_a_checkpoint_goes_from_any_mode_to_any_other(launched, size, other):
    folder, of_size = launched[size]
    saved = of_size["_save"][0]
    for rank, (rows, keys) in enumerate(launched[other][1]["_restore"]):
        for table, target in enumerate((1, None, other - 1)):
            np.testing.assert_array_equal(rows[table], saved[table])
            on_target = range(ROWS[table] if rank == target else 0)
            own = range(rank, ROWS[table], other) if target is None else on_target
            assert sorted(keys[table].tolist()) == list(own)
    assert list(problems(open_checkpoint(f"{folder}/model.ckpt"))) == []


def _look_up_a_bad_key():
    """The errors of lookups of which one rank, each in turn, has a key beyond the rows."""
    rank, size = communicator().rank, communicator().size
    errors = []
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
        variables = _variables(size)[:2]
        key = tf.compat.v1.placeholder(tf.int64, [])
        lookups = [sok.all2all_dense_embedding(variable, [key, 1]) for variable in variables]
        session.run(tf.compat.v1.global_variables_initializer())
        for lookup, rows in zip_equal(lookups, ROWS[:2]):
            for bad in range(size):
                with pytest.raises(tf.errors.InvalidArgumentError) as error:
                    session.run(lookup, {key: rows + 1 if rank == bad else 0})
                errors.append(str(error.value))
            session.run(lookup, {key: rows - 1})
    return errors


def test_a_bad_key_of_one_rank_is_an_error_on_all(launched):
    for errors in launched[3][1]["_look_up_a_bad_key"]:
        for error, (name, rows) in zip_equal(errors, [("spread", 17)] * 3 + [("placed", 7)] * 3):
            assert f"'{name}' has no row for key {rows + 1}" in error and f"[0, {rows})" in error
