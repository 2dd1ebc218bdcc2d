"""dist_model_parallel over ranks: weights as arrays and in files, also of a table larger than memory."""

import contextlib
import filecmp
import gc
import os
import resource

import numpy as np
import pytest
import tensorflow as tf

import dmp_model
import harness
import ranks
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit import dist_model_parallel as dmp
from sparse_operation_kit.ranks.communicator import communicator


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
