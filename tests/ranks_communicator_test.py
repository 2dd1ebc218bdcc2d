"""The communicator: exchanges and collectives, and their names."""

import numpy as np
import pytest
import tensorflow as tf

import ranks
from same_length import zip_equal
from sparse_operation_kit.ranks.communicator import communicator

MOVED_DTYPES = [
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.int8,
    tf.uint8,
    tf.int16,
    tf.uint16,
    tf.int32,
    tf.uint32,
    tf.int64,
    tf.uint64,
    tf.bool,
    tf.complex64,
]


def _evaluate(build, feed=None):
    """The values of the tensors of `build(communicator)` in a new graph, in the second of two runs."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fetches = build(communicator())
        session.run(fetches, feed)
        return session.run(fetches, feed)


def check_rank_and_size():
    import horovod.tensorflow as hvd

    known = communicator()
    assert known is communicator()
    return known.rank, known.size, hvd.rank(), hvd.size()


def check_exchange():
    def build(ranks_):
        size, rank = ranks_.size, ranks_.rank
        # Rank r sends r + 2 s words to rank s, and has one word too many.
        splits = [rank + 2 * target for target in range(size)]
        words = [100 * rank + target for target, count in enumerate(splits) for _ in range(count)]
        return ranks_.exchange(tf.constant([*words, -1], tf.int64), tf.constant(splits, tf.int32), "check")

    return [value.tolist() for value in _evaluate(build)]


def check_allreduce():
    def build(ranks_):
        # Constants, and two collectives of one tensor, which graph optimizers might fold and merge.
        same = tf.constant([1.0, 2.0]) * (ranks_.rank + 1)
        return [
            ranks_.allreduce(same, average=False, name="a/b:0"),
            ranks_.allreduce(same, average=True, name="c"),
            ranks_.allreduce(tf.constant(3 + ranks_.rank), average=False, name="d"),
            ranks_.allreduce(tf.constant(0.5 + ranks_.rank, tf.bfloat16), average=False, name="e"),
        ]

    return [np.asarray(value, np.float64).tolist() for value in _evaluate(build)]


def check_allgather():
    # Rank 0 contributes nothing.
    rows = _evaluate(lambda r: r.allgather(tf.fill([r.rank, 2], tf.cast(r.rank, tf.bfloat16)), "rows"))
    return rows.astype(np.float64).tolist()


def check_broadcast_of_every_dtype():
    def build(ranks_):
        values = [tf.cast([ranks_.rank, 1 - ranks_.rank], dtype) for dtype in MOVED_DTYPES]
        return [ranks_.broadcast(value, ranks_.size - 1, value.dtype.name) for value in values]

    values = _evaluate(build)
    return [(value.dtype.name, np.real(value).astype(np.int64).tolist()) for value in values]


def check_all():
    def build(ranks_):
        return [
            ranks_.all(tf.constant(True), "yes"),
            ranks_.all(tf.constant(ranks_.rank != 1), "not all"),
            ranks_.all(tf.constant(False), "no"),
        ]

    return [bool(value) for value in _evaluate(build)]


def check_names_do_not_depend_on_scopes_and_order():
    def build(ranks_):
        made = {}
        names = ["one", "two", "three"]
        for name in names if ranks_.rank else reversed(names):
            with tf.name_scope(f"scope_of_{ranks_.rank}"):
                made[name] = ranks_.allreduce(tf.constant(len(name)), average=False, name=name)
                made[name + " again"] = ranks_.allreduce(tf.constant(10), average=False, name=name)
        return made

    return {name: int(value) for name, value in _evaluate(build).items()}


def check_what_runs_of_collectives_on_constants():
    """The types of Horovod's ops that remain after TensorFlow's graph optimization."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        known = communicator()
        constant = tf.constant([1.0, 2.0])
        results = [
            known.allreduce(constant, average=False, name="first"),
            known.allreduce(constant, average=False, name="second"),
            known.allgather(constant, "gathered"),
            known.broadcast(constant, 0, "sent"),
        ]
        target = tf.Variable(tf.zeros([2]))
        step = target.assign_add(tf.add_n([2 * result[:2] for result in results]))
        session.run(target.initializer)
        metadata = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        session.run(step, options=options, run_metadata=metadata)
        nodes = [node.op for graph in metadata.partition_graphs for node in graph.node]
        return sorted(node for node in nodes if node.startswith("Horovod"))


def check_gradient_of_an_allreduce():
    def build(ranks_):
        tensor = tf.constant([1.0, 2.0])
        reduced = ranks_.allreduce(tensor, average=False, name="x")
        return tf.gradients(reduced * (1.0 + ranks_.rank), [tensor])[0]

    return _evaluate(build).tolist()


def check_root_rank_in_range():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Rank 7 is not one of the"):
        communicator().broadcast(tf.constant(1), 7, "x")


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


@pytest.fixture(scope="module", params=[("gloo", 3), ("mpi", 2)], ids=lambda p: f"{p[0]}-{p[1]}")
def launched(request):
    transport, size = request.param
    return size, ranks.run_checks(CHECKS, ranks=size, transport=transport)


def test_rank_and_size_are_horovods(launched):
    size, results = launched
    assert results["check_rank_and_size"] == [(rank, size, rank, size) for rank in range(size)]


def test_exchange_brings_every_part_to_its_rank(launched):
    size, results = launched
    for rank, (received, splits) in enumerate(results["check_exchange"]):
        assert splits == [source + 2 * rank for source in range(size)]
        assert received == [100 * source + rank for source in range(size) for _ in range(splits[source])]


def test_allreduce_sums_and_averages(launched):
    size, results = launched
    total = sum(range(1, size + 1))
    for values in results["check_allreduce"]:
        assert values[0] == [total, 2 * total]
        assert values[1] == [total / size, 2 * total / size]
        assert values[2:] == [sum(3 + r for r in range(size)), sum(0.5 + r for r in range(size))]


def test_allgather_of_uneven_parts(launched):
    size, results = launched
    rows = [[float(rank)] * 2 for rank in range(size) for _ in range(rank)]
    assert results["check_allgather"] == [rows] * size


def test_broadcast_keeps_dtypes(launched):
    size, results = launched
    for values in results["check_broadcast_of_every_dtype"]:
        assert [name for name, _ in values] == [dtype.name for dtype in MOVED_DTYPES]
        for (name, value), dtype in zip_equal(values, MOVED_DTYPES):
            expected = np.array([size - 1, 2 - size]).astype(dtype.as_numpy_dtype)
            assert value == np.real(expected).astype(np.int64).tolist(), name


def test_all_asks_every_rank(launched):
    size, results = launched
    assert results["check_all"] == [[True, False, False]] * size


def test_ranks_may_build_in_any_order_and_scope(launched):
    size, results = launched
    expected = {"one": 3, "two": 3, "three": 5, **{f"{name} again": 10 for name in ("one", "two", "three")}}
    assert (
        results["check_names_do_not_depend_on_scopes_and_order"]
        == [{name: value * size for name, value in expected.items()}] * size
    )


def test_collectives_on_constants_are_neither_folded_nor_merged(launched):
    size, results = launched
    expected = ["HorovodAllgather", "HorovodAllreduce", "HorovodAllreduce", "HorovodBroadcast"]
    assert results["check_what_runs_of_collectives_on_constants"] == [expected] * size


def test_gradients_go_through_an_allreduce(launched):
    size, results = launched
    total = float(sum(range(1, size + 1)))
    assert results["check_gradient_of_an_allreduce"] == [[total, total]] * size
