"""sok.Init: its result, its errors, and ops that run before it.

And the ranks that a process belongs to: Horovod's, its launcher's, or only itself.
"""

import sys
import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import native
from sparse_operation_kit.ranks import communicator as module
from sparse_operation_kit.ranks import initialize
from sparse_operation_kit.ranks.communicator import communicator

pytestmark = pytest.mark.cases_on_gpu(1)


@pytest.fixture(autouse=True)
def single_process(monkeypatch):
    """Each test starts like a single process that has not used the library yet."""
    monkeypatch.delitem(sys.modules, "horovod.tensorflow", raising=False)
    for variable in module._LAUNCHER_SIZES:
        monkeypatch.delenv(variable, raising=False)
    module._reset()
    initialize._reset()
    with tf.Graph().as_default():
        yield
    initialize._reset()
    module._reset()


@pytest.fixture
def session():
    with tf.compat.v1.Session() as session:
        yield session


def rows_under(init_kwargs, graph_seed=None, anew=True):
    """Initial rows of keys in a fresh graph and session, and as in a process that has not called Init yet."""
    if anew:
        initialize._reset()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        if graph_seed is not None:
            tf.compat.v1.set_random_seed(graph_seed)
        session.run(sok.Init(**init_kwargs))
        table = sok.EmbeddingVariable(name="table", dim=4)
        rows = tf.nn.embedding_lookup(table, [1, 2, 3])
        harness.initialize(session)
        return session.run(rows)


def test_returns_a_scalar_string_tensor_that_gives_ok(session):
    status = sok.Init(global_batch_size=16)
    assert isinstance(status, tf.Tensor)
    assert status.dtype == tf.string and status.shape.rank == 0
    assert session.run(status) == b"OK"
    assert session.run(status) == b"OK"


BAD_ARGUMENTS = [
    ({}, ValueError, "global_batch_size"),
    *(
        ({"global_batch_size": value}, TypeError, "global_batch_size must be an int")
        for value in (None, "64", 64.0, [64], True, np.float32(8), np.array(8.5))
    ),
    *(({"global_batch_size": value}, ValueError, f"at least 1, not {value}") for value in (0, -1, -(2**40))),
    ({"global_batch_size": 16, "batch_size_per_gpu": 4}, TypeError, "batch_size_per_gpu"),
    *(
        ({"global_batch_size": 16, "seed": seed}, TypeError, "seed must be an int")
        for seed in ("1", 1.5, True, [1])
    ),
    ({"global_batch_size": 16, "seed": 2**64}, ValueError, "64 bits"),
    *(
        ({"global_batch_size": 16, "gradient_exchange_dtype": dtype}, TypeError, "dtype must be one of")
        for dtype in ("float8", tf.float64, 7, "half precision", tf.int32)
    ),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_ARGUMENTS)
def test_arguments_that_are_refused_leave_the_process_unconfigured(session, arguments, error, message):
    with pytest.raises(error, match=message):
        sok.Init(**arguments)
    assert session.run(sok.Init(global_batch_size=32)) == b"OK"


def test_arguments_go_by_name():
    with pytest.raises(TypeError):
        sok.Init(16)


@pytest.mark.parametrize("value", [1, 2**40, np.int64(64), np.int32(3)])
def test_any_positive_int_is_a_batch_size(session, value):
    assert session.run(sok.Init(global_batch_size=value)) == b"OK"


@pytest.mark.parametrize("dtype", [None, tf.float32, "float16", tf.bfloat16])
def test_the_dtype_of_sent_gradients_changes_nothing_at_one_rank(dtype):
    rows = rows_under({"global_batch_size": 16, "seed": 3, "gradient_exchange_dtype": dtype})
    np.testing.assert_array_equal(rows, rows_under({"global_batch_size": 16, "seed": 3}))


def test_a_second_call_with_the_same_arguments_is_harmless(session):
    first = sok.Init(global_batch_size=16, seed=3)
    second = sok.Init(global_batch_size=16, seed=3)
    assert session.run([first, second]) == [b"OK", b"OK"]
    table = sok.EmbeddingVariable(name="table", dim=2)
    rows = tf.nn.embedding_lookup(table, [7])
    harness.initialize(session)
    before = session.run(rows)
    session.run(second)
    np.testing.assert_array_equal(session.run(rows), before)
    assert session.run(table.size()) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"global_batch_size": 16, "seed": 4},
        {"global_batch_size": 16},
        {"global_batch_size": 16, "seed": 3, "gradient_exchange_dtype": tf.float16},
    ],
)
def test_a_second_call_with_other_arguments_is_an_error(session, other):
    first = sok.Init(global_batch_size=16, seed=3)
    with pytest.raises(ValueError, match="global_batch_size=16, seed=3"):
        sok.Init(**other)
    assert session.run(first) == b"OK"


def test_a_second_call_may_have_another_batch_size():
    def run(status):
        assert session.run(status) == b"OK"
        harness.initialize(session)
        return session.run(rows)

    of_graphs = []
    for sizes in ([16, 1, 48], [48, 16]):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            first, *others = [sok.Init(global_batch_size=size, seed=3) for size in sizes]
            rows = tf.nn.embedding_lookup(sok.EmbeddingVariable(name="table", dim=2), [7, 8])
            others.append(sok.Init(global_batch_size=5, seed=3))
            of_graphs += [run(status) for status in (first, *others)]
    for other in of_graphs[1:]:
        np.testing.assert_array_equal(other, of_graphs[0])


def test_in_eager_execution_a_second_call_may_have_another_batch_size():
    with context.eager_mode():
        assert [sok.Init(global_batch_size=size, seed=3).numpy() for size in (16, 17)] == [b"OK"] * 2


def test_saved_models_without_a_session_have_seeds_of_their_own(tmp_path):
    keys, unseen = [1, 2], 9
    trained, v1 = [], tf.compat.v1
    for seed in (3, 4):
        initialize._reset()
        with tf.Graph().as_default(), v1.Session() as session:
            sok.Init(global_batch_size=16, seed=seed)
            ids = v1.placeholder(tf.int64, [None])
            rows = tf.nn.embedding_lookup(sok.EmbeddingVariable(name="table", dim=2), ids)
            session.run(v1.global_variables_initializer())
            session.run(rows, {ids: keys})
            v1.saved_model.simple_save(session, str(tmp_path / str(seed)), {"ids": ids}, {"rows": rows})
            trained.append(session.run(rows, {ids: [*keys, unseen]}))
    with context.eager_mode():
        models = [tf.saved_model.load(str(tmp_path / str(seed))) for seed in (3, 4, 3)]
        for model, want in zip_equal(models, [*trained, trained[0]]):
            served = model.signatures["serving_default"](ids=tf.constant([*keys, unseen], tf.int64))
            np.testing.assert_array_equal(served["rows"], want)


def test_a_session_refuses_the_init_of_another_seed(session):
    session.run(sok.Init(global_batch_size=16, seed=3))
    initialize._reset()
    other = sok.Init(global_batch_size=16, seed=4)
    with pytest.raises(tf.errors.FailedPreconditionError, match="other arguments"):
        session.run(other)


def test_an_initializer_before_init_names_init_and_the_variable(session):
    table = sok.EmbeddingVariable(name="early_table", dim=2)
    with pytest.raises(tf.errors.FailedPreconditionError, match="early_table.*sok.Init"):
        session.run(table.initializer)
    session.run(sok.Init(global_batch_size=16))
    session.run(table.initializer)
    assert session.run(table.size()) == 0


def test_a_lookup_before_init_names_init_and_the_variable(session):
    table = sok.EmbeddingVariable(name="early_table", dim=2)
    rows = tf.nn.embedding_lookup(table, [1])
    with pytest.raises(tf.errors.FailedPreconditionError, match="early_table.*sok.Init"):
        session.run(rows)


def test_a_lookup_before_the_initializer_names_the_initializer(session):
    table = sok.EmbeddingVariable(name="early_table", dim=2)
    rows = tf.nn.embedding_lookup(table, [1])
    session.run(sok.Init(global_batch_size=16))
    with pytest.raises(tf.errors.FailedPreconditionError, match="early_table.*initializer"):
        session.run(rows)
    session.run(table.initializer)
    assert session.run(rows).shape == (1, 2)


@pytest.mark.parametrize("order", ["init first", "table first"])
def test_initializers_run_init_by_themselves(order):
    if order == "init first":
        status = sok.Init(global_batch_size=16, seed=3)
    layer = sok.All2AllDenseEmbedding(10, 2, 1, 1, dynamic_input=True)
    rows = layer(tf.constant([5, 6], tf.int64))
    if order == "table first":
        status = sok.Init(global_batch_size=16, seed=3)
    results = []
    for explicit in (False, True):
        # Each session runs Init separately.
        with tf.compat.v1.Session() as session:
            if explicit:
                session.run(status)
            harness.initialize(session)
            results.append(session.run(rows))
            assert session.run(status) == b"OK"
    np.testing.assert_array_equal(*results)


def test_init_and_initializers_in_one_run_and_again(session):
    status = sok.Init(global_batch_size=16)
    tables = [sok.EmbeddingVariable(name=f"table{i}", dim=2) for i in range(3)]
    initializer = tf.compat.v1.global_variables_initializer()
    rows = tf.nn.embedding_lookup(tables[0], [1, 2])
    for _ in range(3):
        assert session.run([status, initializer])[0] == b"OK"
        assert session.run(tables[0].size()) == 0
        session.run(rows)
        assert session.run([table.size() for table in tables]) == [2, 0, 0]


def test_the_init_of_another_graph_does_not_count():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(sok.Init(global_batch_size=16))
        with tf.Graph().as_default() as other:
            table = sok.EmbeddingVariable(name="lonely_table", dim=2)
        with tf.compat.v1.Session(graph=other) as other_session:
            with pytest.raises(tf.errors.FailedPreconditionError, match="lonely_table.*sok.Init"):
                other_session.run(table.initializer)
        session.run(sok.EmbeddingVariable(name="table", dim=2).initializer)


@pytest.mark.parametrize("order", ["init first", "saver first"])
def test_a_restore_without_initializers(order, tmp_path):
    def build():
        if order == "init first":
            sok.Init(global_batch_size=16, seed=3)
        table = sok.EmbeddingVariable(name="table", dim=2)
        saver = tf.compat.v1.train.Saver()
        if order == "saver first":
            sok.Init(global_batch_size=16, seed=3)
        return table, saver, tf.nn.embedding_lookup(table, [5, 6])

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        _, saver, rows = build()
        harness.initialize(session)
        want = session.run(rows)
        prefix = saver.save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table, saver, rows = build()
        saver.restore(session, prefix)
        assert session.run(table.size()) == 2
        np.testing.assert_array_equal(session.run(rows), want)


@pytest.mark.parametrize("seed", [0, -1, -(2**63), 2**63, 2**64 - 1])
def test_any_64_bit_seed_repeats_the_rows(seed):
    first = rows_under({"global_batch_size": 16, "seed": seed})
    np.testing.assert_array_equal(first, rows_under({"global_batch_size": 16, "seed": seed}))
    assert not np.any(first == rows_under({"global_batch_size": 16, "seed": seed ^ 1}))


def test_without_a_seed_the_graph_seed_decides():
    first = rows_under({"global_batch_size": 16}, graph_seed=11)
    np.testing.assert_array_equal(first, rows_under({"global_batch_size": 16}, graph_seed=11))
    assert not np.any(first == rows_under({"global_batch_size": 16}, graph_seed=12))


def test_without_any_seed_processes_differ():
    first = rows_under({"global_batch_size": 16})
    np.testing.assert_array_equal(first, rows_under({"global_batch_size": 16}, anew=False))
    assert not np.any(first == rows_under({"global_batch_size": 16}))


def install_horovod(monkeypatch, size, rank=0, initialized=True):
    """Replaces the installed Horovod by one with the given ranks."""
    fake: Any = types.ModuleType("horovod.tensorflow")
    state = {"initialized": initialized}
    fake.is_initialized = lambda: state["initialized"]
    fake.init = lambda: state.update(initialized=True)
    fake.shutdown = lambda: state.update(initialized=False)
    fake.size = lambda: size
    fake.rank = lambda: rank
    monkeypatch.setitem(sys.modules, "horovod", types.SimpleNamespace(tensorflow=fake))
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", fake)
    monkeypatch.setattr(native, "horovod_ops", lambda: None)
    return fake


def test_a_process_by_itself_is_one_rank():
    known = communicator()
    assert (known.rank, known.size) == (0, 1)
    assert communicator() is known


def test_one_rank_receives_what_it_sends():
    known = communicator()
    words, splits = tf.constant([1, 2, 3], tf.int64), tf.constant([2], tf.int32)
    scalar = tf.constant(2.0)
    with tf.compat.v1.Session() as session:
        received, lengths = session.run(known.exchange(words, splits, "x"))
        assert received.tolist() == [1, 2] and lengths.tolist() == [2]
        assert session.run(known.all(scalar > 1, "x")) and not session.run(known.all(scalar > 2, "x"))
    assert known.allreduce(scalar, average=True, name="x") is scalar
    assert known.allgather(words, "x") is words
    assert known.broadcast(words, 0, "x") is words
    with pytest.raises(ValueError, match="Rank 1 is not one of the 1 ranks"):
        known.broadcast(words, 1, "x")


@pytest.mark.parametrize("variable", ["HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_one_process_of_a_launcher(variable, monkeypatch):
    monkeypatch.setenv(variable, "1")
    assert communicator().size == 1


@pytest.mark.parametrize(
    ("variable", "launcher"), [("OMPI_COMM_WORLD_SIZE", "mpirun"), ("HOROVOD_SIZE", "horovodrun")]
)
def test_several_processes_without_horovod(variable, launcher, monkeypatch):
    def missing():
        raise ImportError("More than one rank needs Horovod")

    monkeypatch.setattr(native, "horovod_ops", missing)
    monkeypatch.setenv(variable, "3")
    message = rf"one of 3 that {launcher} \({variable}=3\) started. More than one rank needs Horovod"
    with pytest.raises(RuntimeError, match=message):
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)


def test_several_processes_that_do_not_find_each_other(monkeypatch):
    install_horovod(monkeypatch, size=1, initialized=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    with pytest.raises(RuntimeError, match="one of 3 that mpirun.*Horovod found 1"):
        communicator()


def test_a_launched_process_initializes_horovod(monkeypatch):
    fake = install_horovod(monkeypatch, size=3, rank=2, initialized=False)
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    known = communicator()
    assert fake.is_initialized()
    assert (known.rank, known.size) == (2, 3)


def test_initialized_horovod_overrides_the_environment(monkeypatch):
    install_horovod(monkeypatch, size=1)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    assert communicator().size == 1
    module._reset()
    install_horovod(monkeypatch, size=2, rank=1)
    assert (communicator().rank, communicator().size) == (1, 2)


def test_horovod_that_is_not_initialized_is_ignored(monkeypatch):
    install_horovod(monkeypatch, size=2, initialized=False)
    assert communicator().size == 1


def test_horovod_initialized_too_late_is_an_error(monkeypatch):
    communicator()
    install_horovod(monkeypatch, size=2, rank=1)
    with pytest.raises(RuntimeError, match=r"rank 1 of 2.*rank 0 of 1.*hvd.init\(\) before sok.Init"):
        communicator()


def test_horovod_of_one_rank_may_come_later(monkeypatch):
    known = communicator()
    install_horovod(monkeypatch, size=1)
    assert communicator() is known


def test_ranks_without_horovod_are_an_error(monkeypatch):
    fake = install_horovod(monkeypatch, size=2)
    communicator()
    fake.shutdown()
    with pytest.raises(RuntimeError, match="shut down, but its 2 ranks"):
        communicator()
