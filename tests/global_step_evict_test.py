"""GlobalStepEvict uses the graph's global step, also after restarts; compared with a slow reference."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from row_policy_model import DEFAULT, ReferenceTable, Trained, batches_of_keys
from same_length import zip_equal

pytestmark = pytest.mark.cases_on_gpu(2)

v1 = tf.compat.v1
train = v1.train
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


def test_an_update_reads_the_step_before_it_is_counted_up(tmp_path):
    with harness.graph_and_session() as session:
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
