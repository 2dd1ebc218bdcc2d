# Tags: slow
# Not on GPUs: ordinary variables, for which the fake GPU has few of TensorFlow's kernels
"""dist_model_parallel over ranks: training is that of plain tables on the whole batch; weights as arrays and
in files, also of a table larger than memory. IntegerLookup numbers keys as one process does that gets the
ranks' batches in turn."""

import contextlib
import filecmp
import functools
import gc
import os
import resource

import numpy as np
import pytest
import tensorflow as tf

import dmp_model
import harness
import ranks
import sparse_operation_kit.dist_model_parallel as dmp
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.ranks.communicator import communicator

STEPS = 12

# By number of ranks, the cases that train in sessions with their optimizers, and (case, optimizer) of those
# that train in functions. A rank takes seconds for a case, so the cases are spread over the numbers of ranks:
# most have several numbers, and the ways to slice tables have every optimizer.
CASES = {
    1: (
        {"one table": ["adagrad"], "worker order": ["sgd"], "replicas": ["sgd"]},
        [("one table", "adam")],
    ),
    2: (
        {
            "basic": ["sgd", "adam"],
            "balanced": ["sgd", "adagrad"],
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
        return ranks.run_checks([*CHECKS, check_sessions, check_functions], ranks=size, timeout=300)

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
def test_ranks_number_keys_as_one_process(launched, size):
    results = launched(size)
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


def check_weights(folder):
    """Whether weights come back as they were set, from arrays, paths and in chunks, in files; and errors."""
    case = dmp_model.CASES["optimized"]
    arrays = [np.load(os.path.join(folder, f"{i}.npy")) for i in range(len(case.tables))]
    paths = [os.path.join(folder, f"{i}.npy") for i in range(len(case.tables))]
    first = communicator().rank == 0
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        layer = dmp_model.layer_of(case)
        layer.build()
        session.run(tf.compat.v1.global_variables_initializer())
        session.graph.finalize()
        for weights, options in (
            (arrays, {}),
            ([array + 1 for array in arrays], {"chunk": 7, "use_lock": True}),
            (paths, {"chunk": 50, "session": session}),
        ):
            layer.set_weights(weights, **options)
        for got in (layer.get_weights(), layer.get_weights(all_ranks=True, session=session)):
            if first or got != []:
                harness.assert_equal_arrays(got, arrays)
        _check_weights_in_files(layer, arrays, folder)
        _check_errors_of_weights(layer, arrays)
        _check_errors_of_files(layer, arrays, folder)
    # The same in eager execution.
    layer = dmp_model.layer_of(case)
    layer.build()
    layer.set_weights(paths, chunk=50)
    harness.assert_equal_arrays(layer.get_weights(all_ranks=True), arrays)


def _check_weights_in_files(layer, arrays, folder):
    known = communicator()
    of_first = [os.path.join(folder, f"{known.size}.{i}.npy") for i in range(len(arrays))]
    of_rank = [os.path.join(folder, f"{known.size}.{i}.rank{known.rank}.npy") for i in range(len(arrays))]
    on_first = layer.get_weights(paths=of_first, chunk=50)
    assert len(on_first) == (0 if known.rank else len(arrays))
    for options in ({"chunk": 60}, {}):
        on_all = layer.get_weights(True, paths=of_rank, **options)
        for path, got, want in zip_equal(of_rank, on_all, arrays):
            assert isinstance(got, np.memmap) and got.dtype == np.float32 and not got.flags.writeable
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.load(path), want)
    layer.set_weights([array + 1 for array in arrays])
    layer.set_weights([np.load(path, mmap_mode="r") for path in of_first], chunk=50)
    harness.assert_equal_arrays(layer.get_weights(all_ranks=True, chunk=120), arrays)


def _check_errors_of_files(layer, arrays, folder):
    """The same error, which names what is wrong, on all ranks; no file is left or changed."""
    known = communicator()
    last = known.rank == known.size - 1
    good = [os.path.join(folder, f"{known.size}.{i}.npy") for i in range(len(arrays))]
    before = sorted(os.listdir(folder))
    missing = [*good[:2], os.path.join(folder, "none", "2.npy"), *good[3:]]
    for paths, options, message in (
        (good[:-1], {}, "has 7 tables, but there are 6 paths"),
        (good[:-1] if last else good, {}, "has 7 tables, but there are 6 paths"),
        ([*good[:-1], 3] if last else good, {}, "weights of Table 6 .'t6'.: the path must be a str, not 3"),
        (missing, {}, "weights of Table 2 .'t2'.: No such file or directory: .*none/2.npy"),
        (missing if last else good, {"all_ranks": True}, "weights of Table 2 .'t2'.: No such file"),
        ([folder, *good[1:]], {}, "weights of Table 0 .'t0'.: Is a directory: "),
        (good, {"chunk": 0 if last else 50}, "chunk must be an integer of at least 1, not 0"),
        (
            good,
            {"chunk": 60 if last else 50},
            "on rank [12] than on rank 0: .*chunk=60, not .*chunk=50",
        ),
        (None if last else good, {}, "has other arguments on rank .* has_paths=0.*, not .*has_paths=1"),
        (good, {"all_ranks": last}, "has other arguments on rank .*: all_ranks=1.*, not all_ranks=0"),
    ):
        with pytest.raises((ValueError, TypeError, OSError), match=message):
            layer.get_weights(paths=paths, **options)
    with pytest.raises(ValueError, match="set_weights has other arguments on rank .* use_lock=1"):
        layer.set_weights(arrays, use_lock=last)
    assert sorted(os.listdir(folder)) == before
    for path, want in zip_equal(good, arrays):
        np.testing.assert_array_equal(np.load(path), want)


@contextlib.contextmanager
def _limited(kind, soft):
    before, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (before, hard))


def _bytes_of_data():
    """What RLIMIT_DATA limits, as it is now."""
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmData:"))
    return int(line.split()[1]) * 1024


def check_a_table_larger_than_memory(folder):
    """Tables move through files, between placements, where no rank could have them in memory."""
    rows, columns, chunk = 2**20, 24, 2**20
    half = 4 * rows * columns // 2
    paths = [os.path.join(folder, f"large{i}.npy") for i in range(2)]
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        full = dmp.DistributedEmbedding([dmp.Embedding(rows, columns)], row_slice_threshold=1)
        empty = dmp.Embedding(rows, columns, embeddings_initializer="zeros")
        sliced = dmp.DistributedEmbedding([empty], column_slice_threshold=rows * columns // 2)
        for layer in (full, sliced):
            layer.build()
        session.run(tf.compat.v1.global_variables_initializer())
        # What stays in memory from then on: threads and buffers. What does not: earlier sessions.
        for layer in (full, sliced):
            layer.get_weights(paths=paths[:1], chunk=chunk)
            layer.set_weights(paths[:1], chunk=chunk)
        gc.collect()
        with _limited(resource.RLIMIT_DATA, _bytes_of_data() + half):
            # With TensorFlow 1.15, a thread of Horovod is the first to get no memory, which ends the process.
            if compat.IS_TENSORFLOW_2:
                with pytest.raises((MemoryError, ValueError), match="Unable to allocate"):
                    full.get_weights()
            full.get_weights(paths=paths[:1], chunk=chunk)
            sliced.set_weights(paths[:1], chunk=chunk)
            sliced.get_weights(paths=paths[1:], chunk=chunk)
        if compat.IS_TENSORFLOW_2:
            _check_rank_without_memory(full, half)
        assert filecmp.cmp(*paths, shallow=False)
        assert np.load(paths[1], mmap_mode="r")[-1].any()
        message = "weights of Table 0 .*: File too large: .*large0.npy"
        with _limited(resource.RLIMIT_FSIZE, 2**20), pytest.raises((OSError, ValueError), match=message):
            full.get_weights(paths=paths[:1], chunk=chunk)
        # The other rank may be told before rank 0 has removed the file.
        assert communicator().rank or not any(name.endswith(".writing") for name in os.listdir(folder))
        assert filecmp.cmp(*paths, shallow=False)


def _check_rank_without_memory(layer, bytes_of_chunk):
    """The last rank has no memory for a chunk; the others are told."""
    last = communicator().size - 1
    if communicator().rank == last:
        with _limited(resource.RLIMIT_DATA, _bytes_of_data() + bytes_of_chunk // 8):
            with pytest.raises((tf.errors.ResourceExhaustedError, MemoryError), match="OOM|Unable"):
                layer.get_weights()
    else:
        message = f"get_weights failed on rank {last}: (ResourceExhausted|Memory)Error: "
        with pytest.raises(ValueError, match=message):
            layer.get_weights()


def _check_errors_of_weights(layer, arrays):
    last = communicator().rank == communicator().size - 1
    bad = [arrays[0], arrays[1][:, :2] if last else arrays[1], *arrays[2:]]
    with pytest.raises(ValueError, match="weights of Table 1 .'t1'. have the shape .30, 2., not .30, 4."):
        layer.set_weights(bad)
    with pytest.raises(ValueError, match="has 7 tables, but there are 2 weights"):
        layer.set_weights(arrays[:2])
    with pytest.raises(ValueError, match="chunk must be an integer of at least 1, not 0"):
        layer.set_weights(arrays, chunk=0)
    message = "weights of Table 0 .'t0'.: No such file or directory: '/no/such.npy'"
    with pytest.raises(FileNotFoundError if last else ValueError, match=message):
        layer.set_weights(["/no/such.npy" if last else arrays[0], *arrays[1:]])
    message = "no rows" if last else f"set_weights failed on rank {communicator().size - 1}: Arith.*no rows"
    with pytest.raises(ArithmeticError if last else ValueError, match=message):
        layer.set_weights([_Unreadable() if last else arrays[0], *arrays[1:]])
    harness.assert_equal_arrays(layer.get_weights(all_ranks=True), arrays)


class _Unreadable:
    """An array whose reading fails in an unexpected way."""

    def __array__(self, *_):
        raise ArithmeticError("no rows")


def test_weights_come_back_as_they_were_set(tmp_path):
    rng = np.random.default_rng(4)
    for i, (rows, columns, _) in enumerate(dmp_model.CASES["optimized"].tables):
        np.save(tmp_path / f"{i}.npy", rng.normal(size=[rows, columns]).astype(np.float32))
    ranks.run(check_weights, str(tmp_path), ranks=3)


def test_a_table_larger_than_memory(tmp_path):
    ranks.run(check_a_table_larger_than_memory, str(tmp_path), ranks=2)
