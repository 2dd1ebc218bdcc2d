# Tags: slow
# Not on GPUs: launches of ranks and their exchanges
"""sok.Init over ranks, whose arguments must agree; broadcasts of ordinary variables; what ranks exchange, by
each launcher that starts them."""

import os
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

import ranks
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat, native
from sparse_operation_kit.ranks import initialize
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
SIZE = 3


def _initialized(**kwargs):
    """Runs sok.Init in a process that has not called it yet; returns its value."""
    initialize._reset()
    with tf.Graph().as_default(), v1.Session() as session:
        return session.run(sok.Init(**kwargs))


def check_same_arguments():
    assert _initialized(global_batch_size=6 * SIZE, seed=3, gradient_exchange_dtype=tf.float16) == b"OK"


def check_several_sessions():
    initialize._reset()
    with tf.Graph().as_default():
        both = [sok.Init(global_batch_size=SIZE) for _ in range(2)]
        for _ in range(2):
            with v1.Session() as session:
                assert session.run(both) == [b"OK"] * 2


def check_batch_size_is_no_multiple():
    with tf.Graph().as_default(), pytest.raises(
        ValueError, match="global_batch_size=7 is not a multiple of the 3 ranks"
    ):
        sok.Init(global_batch_size=2 * SIZE + 1)


# Arguments by rank, and what every rank is told.
DISAGREEMENTS = [
    (
        lambda rank: {"global_batch_size": SIZE * (2 if rank == 1 else 1)},
        "rank 0 has global_batch_size=3, rank 1 has global_batch_size=6",
    ),
    (
        lambda rank: {
            "global_batch_size": SIZE,
            "gradient_exchange_dtype": [None, tf.float32, "bfloat16"][rank],
        },
        "rank 0 has gradient_exchange_dtype=float, rank 2 has gradient_exchange_dtype=bfloat16",
    ),
]


def check_every_rank_is_told_who_disagrees():
    for arguments, message in DISAGREEMENTS:
        message = f"sok.Init: the ranks disagree: {message}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            _initialized(**arguments(communicator().rank))
        # So do initializers, which run Init.
        initialize._reset()
        with tf.Graph().as_default(), v1.Session() as session:
            sok.Init(**arguments(communicator().rank))
            table = sok.EmbeddingVariable("table", dim=2)
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                session.run(table.initializer)


def check_rank_0_decides_the_seed():
    initialize._reset()
    rank = communicator().rank
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(sok.Init(global_batch_size=SIZE, seed=[-5, 6, None][rank]))
        # Another Init in the session gets the seed that the first one decided.
        other = native.ops.sok_init([SIZE, 0, tf.float32.as_datatype_enum] * SIZE, rank=rank, ranks=SIZE)
        message = f"rank {rank} of 3, global batch size 3, seed -5,"
        with pytest.raises(tf.errors.FailedPreconditionError, match=message):
            session.run(other)


def _tables():
    initialize._reset()
    status = sok.Init(global_batch_size=SIZE, seed=2)
    tables = [sok.EmbeddingVariable(name=f"table{i}", dim=2, initializer=1.0) for i in range(2)]
    return status, tables, tf.reduce_sum(sok.group_embedding_lookup(tables, [[1, 2]] * 2)[0])


def check_initializers_run_init():
    """In new sessions: initializers alone, together with Init, and again."""
    with tf.Graph().as_default():
        status, _, rows = _tables()
        initializer = v1.global_variables_initializer()
        for fetches in (initializer, [status, initializer]):
            with v1.Session() as session:
                for _ in range(2):
                    session.run(fetches)
                    assert session.run(rows) == 4.0


def check_where_init_has_run_an_initializer_concerns_one_rank():
    with tf.Graph().as_default(), v1.Session() as session:
        status, tables, rows = _tables()
        session.run(v1.global_variables_initializer())
        session.run(rows)
        if communicator().rank == 1:
            session.run([tables[0].initializer, status])
        sizes = session.run([table.size() for table in tables])
        # Of the keys 1 and 2, rank 1 has one and rank 2 the other.
        assert sizes == [[0, 0], [0, 1], [1, 1]][communicator().rank]


def check_a_monitored_session():
    """Every rank is the chief of its own session."""
    with tf.Graph().as_default():
        _, _, rows = _tables()
        v1.train.get_or_create_global_step()
        with v1.train.MonitoredTrainingSession() as session:
            assert session.run(rows) == 4.0


# ---- Broadcasts. ----


# TensorFlow 1.15 has no kernels for variables of uint64.
DTYPES = [tf.int64, tf.bfloat16, tf.bool, *([tf.uint64] if compat.IS_TENSORFLOW_2 else []), tf.float16]


def _variables():
    """Variables of several kinds and dtypes whose values depend on the rank."""
    own = 10.0 + communicator().rank
    with v1.variable_scope("scope"):
        resource = v1.get_variable("resource", initializer=[own, -own], use_resource=True)
        reference = v1.get_variable("reference", initializer=own, use_resource=False)
    others = [tf.Variable(tf.cast(own, dtype), name=dtype.name) for dtype in DTYPES]
    return [resource, reference, *others, v1.train.get_or_create_global_step()]


def _values_of(rank):
    own = 10.0 + rank
    return [[own, -own], own, *(1.0 if dtype is tf.bool else own for dtype in DTYPES), 0.0]


def _values(session, variables):
    return [np.asarray(value, np.float64).tolist() for value in session.run(variables)]


def check_global_variables_get_the_values_of_the_root_and_tables_stay():
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(sok.Init(global_batch_size=SIZE, seed=2))
        table = sok.EmbeddingVariable("table", dim=2)
        variables = _variables()
        rows = tf.nn.embedding_lookup(table, [1, 2])
        broadcast = sok.broadcast_global_variables(root_rank=1)
        session.run(v1.global_variables_initializer())
        before = session.run(rows)
        assert _values(session, variables) == _values_of(communicator().rank)
        session.run(broadcast)
        assert _values(session, variables) == _values_of(1)
        np.testing.assert_array_equal(session.run(rows), before)


def check_numbers_beyond_those_of_int64():
    with tf.Graph().as_default(), v1.Session() as session:
        value = tf.constant([2**63 + communicator().rank], tf.uint64)
        assert session.run(communicator().broadcast(value, 1, "value")).tolist() == [2**63 + 1]


def check_some_variables():
    own = 10.0 + communicator().rank
    with tf.Graph().as_default(), v1.Session() as session:
        first, second = tf.Variable(own), tf.Variable(own)
        session.run(v1.global_variables_initializer())
        session.run(sok.broadcast_variables([first], root_rank=2))
        assert session.run([first, second]) == [12.0, own]


def check_the_hook_broadcasts_before_the_first_step_of_a_table():
    with tf.Graph().as_default():
        sok.Init(global_batch_size=SIZE, seed=2)
        table = sok.EmbeddingVariable("table", dim=2, initializer=1.0)
        variables = _variables()
        rows = tf.nn.embedding_lookup(table, [communicator().rank])
        step = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows), var_list=[table])
        hooks = [sok.BroadcastGlobalVariablesHook(root_rank=2)]
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            assert _values(session, variables) == _values_of(2)
            session.run(step)
            assert session.run(rows)[0, 0] < 1.0


def check_what_cannot_be_sent():
    with tf.Graph().as_default():
        words = tf.Variable("word", name="words")
        with pytest.raises(TypeError, match="Variable 'words' of string cannot be sent"):
            sok.broadcast_variables([words])
        with pytest.raises(ValueError, match="Rank 3 is not one of the 3 ranks"):
            sok.broadcast_global_variables(3)


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


def test_one_rank_needs_no_broadcast():
    with tf.Graph().as_default(), v1.Session() as session:
        variable = tf.Variable(3.0)
        session.run(variable.initializer)
        session.run(sok.broadcast_global_variables())
        assert session.run(variable) == 3.0
        with pytest.raises(ValueError, match="Rank 1"):
            sok.broadcast_global_variables(1)


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


EXCHANGE_CHECKS = [
    value for name, value in list(globals().items()) if name.startswith("check_") and value not in CHECKS
]


@pytest.mark.parametrize(
    ("transport", "size", "checks"), [("gloo", SIZE, CHECKS + EXCHANGE_CHECKS), ("mpi", 2, EXCHANGE_CHECKS)]
)
def test_on_ranks(transport, size, checks):
    """The output names the check that failed."""
    ranks.run_checks(checks, ranks=size, transport=transport)


def _rank_times(factor):
    return communicator().rank * factor


def _fail_on_the_last(way):
    rank, size = communicator().rank, communicator().size
    print(f"rank {rank} is here", flush=True)
    if rank != size - 1:
        time.sleep(60 if way == "hang" else 0)
    elif way == "raise":
        raise ValueError("a reason")
    elif way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def test_results_come_by_rank_from_horovodrun_too():
    """ranks_training_test compares those of the other launchers with one process."""
    assert ranks.run(_rank_times, 5, ranks=2, transport="horovodrun") == [0, 5]


def test_an_exception_on_a_rank_fails_with_its_output():
    """Also over MPI: see ranks_failures_test."""
    with pytest.raises(AssertionError, match="ValueError: a reason"):
        ranks.run(_fail_on_the_last, "raise", ranks=2)


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
