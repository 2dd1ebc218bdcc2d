"""What ranks exchange, by each launcher that starts them."""

import os
import signal
import time

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


def check_rank_and_size_are_horovods():
    import horovod.tensorflow as hvd

    known = communicator()
    assert known is communicator()
    assert (known.rank, known.size) == (hvd.rank(), hvd.size())


def check_allreduce_sums_and_averages():
    def build(ranks_):
        # Constants, and two collectives of one tensor, which graph optimizers might fold and merge.
        same = tf.constant([1.0, 2.0]) * (ranks_.rank + 1)
        return [
            ranks_.allreduce(same, average=False, name="a/b:0"),
            ranks_.allreduce(same, average=True, name="c"),
            ranks_.allreduce(tf.constant(3 + ranks_.rank), average=False, name="d"),
            ranks_.allreduce(tf.constant(0.5 + ranks_.rank, tf.bfloat16), average=False, name="e"),
        ]

    size = communicator().size
    total = sum(range(1, size + 1))
    values = [np.asarray(value, np.float64).tolist() for value in _evaluate(build)]
    assert values[:2] == [[total, 2 * total], [total / size, 2 * total / size]]
    assert values[2:] == [sum(3 + r for r in range(size)), sum(0.5 + r for r in range(size))]


def check_allgather_of_uneven_parts():
    # Rank 0 contributes nothing.
    rows = _evaluate(lambda r: r.allgather(tf.fill([r.rank, 2], tf.cast(r.rank, tf.bfloat16)), "rows"))
    expected = [[float(rank)] * 2 for rank in range(communicator().size) for _ in range(rank)]
    assert rows.astype(np.float64).tolist() == expected


def check_broadcast_keeps_every_dtype():
    def build(ranks_):
        values = [tf.cast([ranks_.rank, 1 - ranks_.rank], dtype) for dtype in MOVED_DTYPES]
        return [ranks_.broadcast(value, ranks_.size - 1, value.dtype.name) for value in values]

    size = communicator().size
    for value, dtype in zip_equal(_evaluate(build), MOVED_DTYPES):
        assert value.dtype == dtype.as_numpy_dtype
        expected = np.array([size - 1, 2 - size]).astype(dtype.as_numpy_dtype)
        np.testing.assert_array_equal(value, expected, dtype.name)


def check_all_asks_every_rank():
    def build(ranks_):
        return [
            ranks_.all(tf.constant(True), "yes"),
            ranks_.all(tf.constant(ranks_.rank != 1), "not all"),
            ranks_.all(tf.constant(False), "no"),
        ]

    assert _evaluate(build) == [True, False, False]


def check_names_do_not_depend_on_scopes_and_order():
    def build(ranks_):
        made = {}
        names = ["one", "two", "three"]
        for name in names if ranks_.rank else reversed(names):
            with tf.name_scope(f"scope_of_{ranks_.rank}"):
                made[name] = ranks_.allreduce(tf.constant(len(name)), average=False, name=name)
                made[name + " again"] = ranks_.allreduce(tf.constant(10), average=False, name=name)
        return made

    expected = {"one": 3, "two": 3, "three": 5, "one again": 10, "two again": 10, "three again": 10}
    assert _evaluate(build) == {name: value * communicator().size for name, value in expected.items()}


def check_collectives_on_constants_are_neither_folded_nor_merged():
    """By TensorFlow's graph optimization."""
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
        of_horovod = sorted(node for node in nodes if node.startswith("Horovod"))
        expected = ["HorovodAllgather", "HorovodAllreduce", "HorovodAllreduce", "HorovodBroadcast"]
        assert of_horovod == expected


def check_gradients_go_through_an_allreduce():
    def build(ranks_):
        tensor = tf.constant([1.0, 2.0])
        reduced = ranks_.allreduce(tensor, average=False, name="x")
        return tf.gradients(reduced * (1.0 + ranks_.rank), [tensor])[0]

    assert _evaluate(build).tolist() == [sum(range(1, communicator().size + 1))] * 2


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize(("transport", "size"), [("gloo", 3), ("mpi", 2)])
def test_on_ranks(transport, size):
    """The output names the check that failed."""
    ranks.run_checks(CHECKS, ranks=size, transport=transport)


def _rank():
    import horovod.tensorflow as hvd

    hvd.init()
    return hvd.rank(), hvd.size()


def _rank_times(factor):
    return _rank()[0] * factor


def _fail_on_the_last(way):
    rank, size = _rank()
    print(f"rank {rank} is here", flush=True)
    if rank != size - 1:
        time.sleep(60 if way == "hang" else 0)
    elif way == "raise":
        raise ValueError("a reason")
    elif way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("transport", "size"), [("gloo", 3), ("mpi", 2), ("horovodrun", 2)])
def test_results_come_by_rank(transport, size):
    assert ranks.run(_rank_times, 5, ranks=size, transport=transport) == [5 * i for i in range(size)]


@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_an_exception_on_a_rank_fails_with_its_output(transport):
    with pytest.raises(AssertionError, match="ValueError: a reason"):
        ranks.run(_fail_on_the_last, "raise", ranks=2, transport=transport)


def test_a_killed_rank_is_reported():
    job = ranks.launch(_fail_on_the_last, "kill", ranks=2)
    assert job.returncodes == [0, -signal.SIGKILL]
    assert job.returncode == -signal.SIGKILL and not job.timed_out
    assert "rank 1 is here" in job.outputs[1]


@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_a_hang_is_killed_with_stacks(transport):
    job = ranks.launch(_fail_on_the_last, "hang", ranks=2, transport=transport, timeout=10)
    assert job.timed_out
    assert "_fail_on_the_last" in job.outputs[0]


def test_a_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nprint(os.environ['HOROVOD_RANK'], os.environ['WORD'], sys.argv[1:])\n"
    )
    job = ranks.launch(program, "a", "b", ranks=2, env={"WORD": "hello"})
    assert job.returncode == 0
    assert job.outputs == ["0 hello ['a', 'b']\n", "1 hello ['a', 'b']\n"]
