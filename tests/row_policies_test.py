# Tags: versions
"""Admission, eviction and bounds of tables, also across saves and restores, against slow references;
GlobalStepEvict, which uses the graph's global step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from row_policy_model import (
    CASES,
    CBF,
    DEFAULT,
    DIM,
    INITIAL,
    OPTION,
    ReferenceTable,
    Trained,
    batches_of_keys,
)
from same_length import zip_equal
from sparse_operation_kit.lookup import group
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

v1 = tf.compat.v1
_NEVER_SEEN = 2**62 + 1


def _run(policies: dict, reference: ReferenceTable, batches: list[list[int]]) -> None:
    everything = [*sorted({key for batch in batches for key in batch}), _NEVER_SEEN]
    with harness.graph_and_session() as session:
        trained = Trained(**policies)
        harness.initialize(session)
        for batch in batches:
            assert trained.step(session, batch) == reference.step(batch)
            assert session.run(trained.table.size()) == len(reference.rows)
        assert trained.read(session, everything) == [reference.read(key) for key in everything]
        # Reading inserts no keys.
        assert session.run(trained.table.size()) == len(reference.rows)


@pytest.mark.parametrize("before_lookup", [False, True])
@pytest.mark.parametrize("filter_freq", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["counter", "bloom"])
def test_keys_get_rows_when_a_lookup_makes_them_frequent(kind, filter_freq, before_lookup):
    """`before_lookup` is DeepRec's rule until 2023: that lookup reads the default, and trains the key."""
    more = {} if kind == "counter" else CBF
    make = sok.CounterFilter if kind == "counter" else sok.CBFFilter
    reference = ReferenceTable(filter_freq, DEFAULT, before_lookup=before_lookup)
    admission = make(filter_freq, before_lookup=before_lookup, **more)
    _run({"admission": admission}, reference, batches_of_keys(seed=filter_freq, steps=25))
    assert filter_freq < 2 or reference.waiting, "some keys must be left out for the test to say anything"


@pytest.mark.parametrize("on_full", ["evict_lru", "evict_lfu"])
def test_a_lookup_of_more_keys_than_the_capacity_is_an_error_that_changes_nothing(session, on_full):
    trained = Trained(capacity=4, on_full=on_full)
    harness.initialize(session)
    trained.step(session, [1, 2, 3])
    before = trained.read(session, [1, 2, 3, 4, 5])
    with pytest.raises(tf.errors.ResourceExhaustedError, match="'table' .* at most 4 .*needs 5"):
        trained.step(session, [1, 4, 5, 6, 7])
    assert session.run(trained.table.size()) == 3
    assert trained.read(session, [1, 2, 3, 4, 5]) == before
    # As many keys as the capacity are not an error.
    assert trained.step(session, [4, 5, 6, 7]) == [INITIAL] * 4


def test_gradients_exist_for_keys_with_rows_only(session):
    trained = Trained(admission=sok.CounterFilter(2))
    harness.initialize(session)
    gradient = session.run(trained.gradient, {trained.keys: [5, 6, 5, 7]})
    assert gradient.values.tolist() == [[2.0] * DIM]
    gradient = session.run(trained.gradient, {trained.keys: [8]})
    assert gradient.values.shape == (0, DIM)
    gradient = session.run(trained.gradient, {trained.keys: [6, 8, 9]})
    assert gradient.values.tolist() == [[1.0] * DIM] * 2


def test_all_lookups_of_a_group_count_together(session):
    table = sok.EmbeddingVariable("table", DIM, initializer=OPTION, admission=sok.CounterFilter(3))
    bags = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 1, 2], tf.int64), [2, 2])
    lookups = [
        group.DenseLookup(table, tf.constant([[1, 2]], tf.int64)),
        group.SparseLookup(table, bags, "mean"),
    ]
    dense, pooled = group.lookup_group(lookups)
    harness.initialize(session)
    rows, means = session.run([dense, pooled])
    assert rows[0, :, 0].tolist() == [INITIAL, DEFAULT]
    assert means[:, 0].tolist() == [INITIAL, DEFAULT]
    assert session.run(table.size()) == 1


def test_evicted_keys_start_anew_and_their_memory_is_used_again(session):
    reference = ReferenceTable(2, DEFAULT)
    batches = batches_of_keys(seed=3, steps=30)
    trained = Trained(admission=sok.CounterFilter(2))
    gone = v1.placeholder(tf.int64, [None])
    evicted = trained.table.evict(gone)
    harness.initialize(session)
    for i, batch in enumerate(batches):
        assert trained.step(session, batch) == reference.step(batch)
        if i % 3:
            continue
        keys = [*batch[::2], *batch[:4], 10**12]
        before = len(reference.rows)
        reference.evict(keys)
        assert session.run(evicted, {gone: keys}) == before - len(reference.rows)
        assert session.run(trained.table.size()) == len(reference.rows)
    everything = sorted({key for batch in batches for key in batch})
    assert trained.read(session, everything) == [reference.read(key) for key in everything]


@pytest.mark.parametrize(("admission", "rows"), [(sok.CounterFilter(2), 0), (sok.CBFFilter(2, **CBF), 1)])
def test_only_exact_counts_of_evicted_keys_are_forgotten(session, admission, rows):
    trained = Trained(admission=admission)
    evicted = trained.table.evict([7])
    harness.initialize(session)
    trained.step(session, [7, 7])
    assert session.run(evicted) == 1
    trained.step(session, [7])
    assert session.run(trained.table.size()) == rows


def test_a_gradient_that_comes_after_its_row_went_is_dropped(session):
    """The next key that gets the row does not get the gradient."""
    table = sok.EmbeddingVariable("table", DIM, initializer=OPTION)
    rows = tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64))
    with tf.control_dependencies([rows]):
        evicted = table.evict([1])
    with tf.control_dependencies([evicted]):
        newcomer = tf.nn.embedding_lookup(table, tf.constant([3], tf.int64))
    (gradient,) = tf.gradients(tf.reduce_sum(rows), table)
    with tf.control_dependencies([newcomer]):
        late = tf.IndexedSlices(tf.identity(gradient.values), tf.identity(gradient.indices))
    update = v1.train.GradientDescentOptimizer(1.0).apply_gradients([(late, table)])
    (read,) = group.lookup_group([group.DenseLookup(table, tf.constant([1, 2, 3], tf.int64))], training=False)
    harness.initialize(session)
    session.run(update)
    assert session.run(table.size()) == 2
    assert session.run(read)[:, 0].tolist() == [INITIAL, INITIAL - 1, INITIAL]


BAD_POLICIES = [
    ({"on_full": "evict"}, ValueError, "'error', 'evict_lru' or 'evict_lfu', not 'evict'"),
    ({"on_full": "evict_lru"}, ValueError, "'evict_lru' needs a capacity"),
    ({"admission": 3}, TypeError, "not 3"),
    ({"eviction": sok.CounterFilter(3)}, TypeError, "eviction must be None"),
    ({"admission": sok.GlobalStepEvict(3)}, TypeError, "admission must be None"),
]
_DIRECT = {"use_hashtable": False, "capacity": 5}
BAD_POLICIES += [
    ({**_DIRECT, "admission": sok.CounterFilter(2)}, ValueError, "admission must be None"),
    ({**_DIRECT, "eviction": sok.L2WeightEvict(0.1)}, ValueError, "eviction must be None"),
    ({**_DIRECT, "on_full": "evict_lfu"}, ValueError, "on_full must be 'error'"),
]


@pytest.mark.parametrize(("policies", "error", "message"), BAD_POLICIES)
def test_policies_that_a_table_cannot_have(policies, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=f"'table'.*{message}"):
        sok.EmbeddingVariable("table", DIM, **policies)


def test_rows_of_a_table_without_hashing_cannot_be_evicted():
    with tf.Graph().as_default():
        table = sok.EmbeddingVariable("table", DIM, **_DIRECT)
        with pytest.raises(ValueError, match="'table' cannot evict"):
            table.evict([1])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: sok.CounterFilter(-1), ValueError, "filter_freq must be in .0, .*not -1"),
        (lambda: sok.CounterFilter(2.0), TypeError, "filter_freq must be an int, not 2.0"),
        (lambda: sok.CBFFilter(0, -1), ValueError, "max_element_size must be in .0, .*not -1"),
        (lambda: sok.CBFFilter(2), ValueError, "max_element_size must be in .1, .*not 0"),
        (lambda: sok.CBFFilter(2, 10), ValueError, "false_positive_probability must be in .0, 1., not -1.0"),
        (lambda: sok.CBFFilter(2, 10, 1.0), ValueError, "not 1.0"),
        (lambda: sok.CBFFilter(2, 10, "0.1"), TypeError, "not '0.1'"),
        (lambda: sok.CBFFilter(2, 10, 0.1, tf.float32), ValueError, "counter_type must be one of"),
        (lambda: sok.GlobalStepEvict(-1), ValueError, "steps_to_live must be in .0, .*not -1"),
        (lambda: sok.GlobalStepEvict(True), TypeError, "must be an int, not True"),
        (lambda: sok.L2WeightEvict(float("nan")), ValueError, "finite, not nan"),
        (lambda: sok.L2WeightEvict("1"), TypeError, "not '1'"),
        (lambda: sok.InitializerOption(None, 1, float("inf")), ValueError, "finite, not inf"),
        (lambda: sok.InitializerOption(None, 1, None), TypeError, "not None"),
    ],
)
def test_bad_options(make, error, message):
    with pytest.raises(error, match=message):
        make()


train = tf.compat.v1.train


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_rows_and_counts_go_on_through_saves_and_restores(tmp_path, case, incremental):
    """Three sessions, each of which restores the last checkpoint of the previous one."""
    policies, expected = CASES[case]
    reference = ReferenceTable(default_value=DEFAULT, **expected)
    batches = batches_of_keys(seed=11, steps=36)
    everything = sorted({key for batch in batches for key in batch})
    path, went = None, 0
    for part in range(3):
        with harness.graph_and_session() as session:
            trained = Trained(**policies())
            saver = train.Saver(builder=IncrementalBuilder()) if incremental else train.Saver()
            if path is None:
                harness.initialize(session)
            else:
                saver.restore(session, path)
            for step in range(part * 12, part * 12 + 12):
                assert trained.read(session, everything) == [reference.read(key) for key in everything]
                update = step % 5 != 3
                found = trained.step(session, batches[step], update)
                assert found == reference.step(batches[step], update)
                if step % 4 == 3:
                    path = saver.save(session, str(tmp_path / "model"), global_step=step)
                    before = len(reference.rows) + len(reference.waiting)
                    reference.save()
                    went += before - len(reference.rows) - len(reference.waiting)
                    assert session.run(trained.table.size()) == len(reference.rows)
    assert (went > 0) == ("eviction" in policies())


LIFE = 5
POLICIES = {
    "all keys": (lambda: {"eviction": sok.GlobalStepEvict(LIFE)}, {"steps_to_live": LIFE}),
    "with a filter": (
        lambda: {"eviction": sok.GlobalStepEvict(LIFE), "admission": sok.CounterFilter(2)},
        {"steps_to_live": LIFE, "filter_freq": 2},
    ),
}


def _global_step(kind):
    """(the global step, a placeholder, an op that sets the global step to the placeholder's value)."""
    if kind == "tf.compat.v1":
        step = train.get_or_create_global_step()
    else:
        step = v1.get_variable(
            "global_step",
            [],
            tf.int64,
            tf.zeros_initializer(),
            trainable=False,
            collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.GLOBAL_STEP],
            use_resource=kind == "resource",
        )
    value = v1.placeholder(tf.int64, [])
    return step, value, v1.assign(step, value).op


def _last_steps(prefix):
    """The last step of each key in a checkpoint."""
    arrays = harness.saved_tables(prefix)["table"]
    return dict(zip_equal(arrays["keys"].tolist(), arrays["last_step"].tolist()))


def _told_ops():
    """The number of ops that give a table the global step."""
    operations = v1.get_default_graph().get_operations()
    return sum(op.type == "SokTableSetGlobalStep" for op in operations)


# Each pair of a kind of global step, a policy, and fused or separate updates.
@pytest.mark.parametrize(
    ("kind", "policy", "fused"),
    [
        ("tf.compat.v1", "all keys", True),
        ("tf.compat.v1", "with a filter", False),
        ("resource", "all keys", False),
        ("resource", "with a filter", True),
        ("reference", "all keys", False),
        ("reference", "with a filter", True),
    ],
)
def test_rows_go_by_the_global_step(kind, policy, fused, tmp_path):
    policies, of_reference = POLICIES[policy]
    reference = ReferenceTable(default_value=DEFAULT, **of_reference)
    rng = np.random.default_rng(11)
    went = 0
    with harness.graph_and_session() as session, sok.optimizers.fused_updates(fused):
        step, value, assign = _global_step(kind)
        trained = Trained(**policies())
        saver = train.Saver()
        harness.initialize(session)
        now = 1000
        for number, keys in enumerate(batches_of_keys(seed=2, steps=30)):
            session.run(assign, {value: now})
            assert trained.step(session, keys) == reference.step(keys, global_step=now)
            now += int(rng.integers(0, 4))
            if number % 3 == 2:
                session.run(assign, {value: now})
                before = len(reference.rows)
                saver.save(session, str(tmp_path / "model"), global_step=number)
                reference.save(global_step=now)
                went += before - len(reference.rows)
                keys, _ = harness.table_contents(session, trained.table)
                assert set(keys.tolist()) == set(reference.rows)
    assert went > 10


def test_an_update_reads_the_step_before_it_is_counted_up(session, tmp_path):
    step = train.get_or_create_global_step()
    table = sok.EmbeddingVariable("table", 2, eviction=sok.GlobalStepEvict(1))
    keys = v1.placeholder(tf.int64, [None])
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, keys))
    update = train.GradientDescentOptimizer(0.5).minimize(loss, global_step=step)
    saver = train.Saver()
    harness.initialize(session)
    for key in range(20):
        session.run(update, {keys: [key]})
    saver.save(session, str(tmp_path / "model"))
    assert _last_steps(str(tmp_path / "model")) == {19: 19}


def test_tables_without_global_step_evict_do_not_get_the_global_step():
    with harness.graph_and_session():
        train.get_or_create_global_step()
        Trained(eviction=sok.L2WeightEvict(1.0), admission=sok.CounterFilter(2))
        train.Saver()
        assert _told_ops() == 0
    with harness.graph_and_session():
        Trained(eviction=sok.GlobalStepEvict(3))
        train.Saver()
        assert _told_ops() == 0  # there is no global step


class _Run:
    """A monitored session in which each step, with other training, increments the global step by `stride`."""

    def __init__(self, folder, stride=1, **policies):
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        self.step = train.get_or_create_global_step()
        self.model = Trained(**policies)
        self.count = v1.assign_add(self.step, stride)
        self.folder = folder

    def train(self, batches, reference):
        with train.MonitoredTrainingSession(
            checkpoint_dir=self.folder, save_checkpoint_steps=10**6, save_summaries_steps=None
        ) as session:
            now = int(session.run(self.step))
            for keys in batches:
                assert self.model.step(session, keys) == reference.step(keys, global_step=now)
                now = int(session.run(self.count))
            reference.save(global_step=now)
        return now


def test_ages_go_on_after_a_restart(tmp_path):
    policies, of_reference = POLICIES["with a filter"]
    reference = ReferenceTable(default_value=DEFAULT, **of_reference)
    batches = batches_of_keys(seed=5, steps=15)
    for start in range(0, 15, 3):
        with tf.Graph().as_default():
            now = _Run(str(tmp_path), 2, **policies()).train(batches[start : start + 3], reference)
        want = {key: row.last_step for key, row in reference.rows.items()}
        assert _last_steps(str(tmp_path / f"model.ckpt-{now}")) == want
    assert now == 30


def _clock(prefix):
    return saved_files.entry(prefix)["table"].get("clock")


@pytest.mark.parametrize("start", [0, 3, 1000])
def test_a_table_that_has_counted_its_own_steps_gets_a_global_step(start, tmp_path):
    own, both = str(tmp_path / "own"), str(tmp_path / "both")
    with harness.graph_and_session() as session:
        trained = Trained(eviction=sok.GlobalStepEvict(LIFE))
        saver = train.Saver()
        harness.initialize(session)
        for keys in ([1], [2], [3, 4]):
            trained.step(session, keys)
        saver.save(session, own)
    assert _last_steps(own) == {1: 1, 2: 2, 3: 3, 4: 3} and _clock(own) is None
    with harness.graph_and_session() as session:
        step, value, assign = _global_step("resource")
        trained = Trained(eviction=sok.GlobalStepEvict(LIFE))
        saver = train.Saver([trained.table])
        session.run(step.initializer)
        session.run(assign, {value: start})
        saver.restore(session, own)
        trained.step(session, [9])
        session.run(assign, {value: start + 1})
        trained.step(session, [4])
        saver.save(session, both)
        got = {1: start - 2, 2: start - 1, 3: start, 9: start, 4: start + 1}
        assert _last_steps(both) == {key: max(last, 0) for key, last in got.items()}
        assert _clock(both) == "global_step"
        # The oldest rows are evicted by the global step.
        session.run(assign, {value: start + LIFE + 1})
        saver.save(session, both)
        assert set(_last_steps(both)) == {4}
    with harness.graph_and_session() as session:
        # A graph without a global step continues counting from the checkpoint.
        trained = Trained(eviction=sok.GlobalStepEvict(LIFE))
        train.Saver().restore(session, both)
        trained.step(session, [7])
        prefix = train.Saver().save(session, str(tmp_path / "again"))
        assert _last_steps(prefix)[7] == start + LIFE + 2


def test_incremental_checkpoints(tmp_path):
    policies, _ = POLICIES["all keys"]
    batches = batches_of_keys(seed=6, steps=20)
    arguments = {"checkpoint_dir": str(tmp_path), "save_checkpoint_steps": 8, "save_summaries_steps": None}
    for start in (0, 10):
        with tf.Graph().as_default():
            run = _Run(str(tmp_path), 1, **policies())
            hook = sok.IncrementalCheckpointHook(str(tmp_path), save_steps=3)
            with train.MonitoredTrainingSession(hooks=[hook], **arguments) as session:
                for keys in batches[start : start + 10]:
                    run.model.step(session, keys)
                    session.run(run.count)
    with tf.Graph().as_default():
        run = _Run(str(tmp_path), 1, **policies())
        saver = train.Saver()
        with v1.Session() as session:
            saver.restore(session, train.latest_checkpoint(str(tmp_path)))
            assert session.run(run.step) == 20
            saver.save(session, str(tmp_path / "full"))
    came = {key: step for step, keys in enumerate(batches) for key in keys}
    assert _last_steps(str(tmp_path / "full")) == {key: at for key, at in came.items() if at >= 20 - LIFE}
