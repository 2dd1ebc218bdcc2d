"""Admission, eviction and bounds over ranks: what all ranks look up in a step counts together.

Also in training that goes on on another number of ranks, from checkpoints and by the global step."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from row_policy_model import CASES, DEFAULT, OPTION, ReferenceTable, Trained, batches_of_keys
from same_length import zip_equal
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
train = v1.train
STEPS = 8


# ---- Rows, or sums of bags, of tables with policies. ----

BAG = 4
EXCHANGES = ("rows", "sums")
_BOUNDED = [{"capacity": 13, "on_full": on_full} for on_full in ("evict_lru", "evict_lfu")]
# The policies of a table, and those of the reference.
POLICIES = {
    **{name: CASES[name] for name in ("counter", "bloom", "before_lookup")},
    **{bounds["on_full"]: (lambda bounds=bounds: bounds, bounds) for bounds in _BOUNDED},
}
# By number of ranks, (exchange, policies): all on three (on a GPU each policy once), some on other numbers.
LOOKED_UP = {
    2: [("sums", "bloom"), ("rows", "before_lookup"), ("rows", "evict_lru")],
    3: [
        (exchange, name)
        for number, name in enumerate(POLICIES)
        for exchange in sized(EXCHANGES, EXCHANGES[number % 2 :][:1])
    ],
    1: [],
    4: [("sums", "counter"), ("sums", "evict_lfu")],
}


def _bags_of_keys(rank: int, step: int) -> np.ndarray:
    """Whole bags of keys. Ranks have different numbers, and some have none."""
    rng = np.random.default_rng([rank, step])
    count = BAG * int(rng.integers(0, 6))
    few = np.concatenate([harness.HOSTILE_KEYS, np.arange(12)])
    return np.where(
        rng.random(count) < 0.3, rng.choice(few, count), harness.zipf_keys(rng, count, vocabulary=60)
    )


def _looked_up(exchange: str, name: str) -> list[list[float]]:
    """The outputs of this rank's lookups: rows, or sums of bags."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("table", 2, initializer=OPTION, **POLICIES[name][0]())
        keys = v1.placeholder(tf.int64, [None])
        if exchange == "rows":
            (output,) = group.lookup_group([group.DenseLookup(table, keys)])
        else:
            bags = tf.RaggedTensor.from_value_rowids(keys, tf.range(tf.size(keys)) // BAG).to_sparse()
            (output,) = group.lookup_group([group.SparseLookup(table, bags, "sum", exchange="sums")])
        update = train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(output))
        harness.initialize(session)
        outputs = []
        for step in range(STEPS):
            rows, _ = session.run([output, update], {keys: _bags_of_keys(communicator().rank, step)})
            assert np.all(rows == rows[:, :1])
            outputs.append(rows[:, 0].tolist())
        return outputs


def _expected(size: int, exchange: str, name: str) -> list[list[list[float]]]:
    """The expected outputs by rank and step, from one reference table per owner for the keys of all ranks."""
    policies = POLICIES[name][1]
    tables = [ReferenceTable(default_value=DEFAULT, **policies) for _ in range(size)]
    expected = [[] for _ in range(size)]
    seen = set()
    for step in range(STEPS):
        values = {}
        of_all = np.concatenate([_bags_of_keys(rank, step) for rank in range(size)])
        seen.update(of_all.tolist())
        owners = of_all.view(np.uint64) % np.uint64(size)
        for owner, table in enumerate(tables):
            own = [int(key) for key in of_all[owners == owner]]
            values.update(zip_equal(own, table.step(own)))
        for rank in range(size):
            rows = np.array([values[int(key)] for key in _bags_of_keys(rank, step)])
            expected[rank].append((rows if exchange == "rows" else rows.reshape(-1, BAG).sum(1)).tolist())
    # The tables have been full, and evicted rows.
    assert "capacity" not in policies or sum(len(table.rows) for table in tables) < len(seen)
    return expected


# ---- Tables that go by the global step. ----

LIFE = 4
# The numbers of ranks, on each of which training goes on from the number before.
SIZES = (2, 3, 1)
STRIDE = 2  # global steps per step here, because other training takes every second one
PARTS = 3  # of a step's keys, which ranks share
STEPS_OF_PART = 4  # of training, on each number of ranks


def _part_of_keys(step: int, part: int) -> np.ndarray:
    rng = np.random.default_rng([step, part])
    return harness.zipf_keys(rng, int(rng.integers(0, 12)), vocabulary=60)


def _by_global_step(folder: str, first: int) -> int:
    """Trains steps on this rank's share of the keys; gives the global step."""
    known = communicator()
    with tf.Graph().as_default():
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=1)
        step = train.get_or_create_global_step()
        table = sok.EmbeddingVariable(
            "table", 2, eviction=sok.GlobalStepEvict(LIFE), admission=sok.CounterFilter(2)
        )
        keys = v1.placeholder(tf.int64, [None])
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, keys))
        update = train.GradientDescentOptimizer(1.0).minimize(loss)
        count = v1.assign_add(step, STRIDE)
        with train.MonitoredTrainingSession(
            checkpoint_dir=folder, save_checkpoint_steps=10**6, save_summaries_steps=None
        ) as session:
            for number in range(first, first + STEPS_OF_PART):
                mine = [_part_of_keys(number, part) for part in range(known.rank, PARTS, known.size)]
                session.run(update, {keys: np.concatenate([*mine, np.zeros([0], np.int64)])})
                session.run(count)
            return int(session.run(step))


# ---- The launches, and what is expected. ----


def _all_checks(folder: str) -> dict:
    size = communicator().size
    found = {"looked up": [_looked_up(*case) for case in LOOKED_UP[size]]}
    if size in SIZES:
        found["global step"] = _by_global_step(folder, STEPS_OF_PART * SIZES.index(size))
        found["another number"] = _part(os.path.join(folder, "of another number"))
    return found


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """(folder, the results of all ranks by number of ranks)."""
    folder = str(tmp_path_factory.mktemp("saved"))
    return folder, {size: ranks.run(_all_checks, folder, ranks=size) for size in sized([*SIZES, 4], SIZES)}


def test_what_all_ranks_look_up_counts_together(launched):
    for size, found in launched[1].items():
        for i, case in enumerate(LOOKED_UP[size]):
            assert [of_rank["looked up"][i] for of_rank in found] == _expected(size, *case), case


def test_rows_go_by_the_global_step_on_any_number_of_ranks(launched):
    reference = ReferenceTable(steps_to_live=LIFE, filter_freq=2)
    went = 0
    for number, size in enumerate(SIZES):
        first, last = STEPS_OF_PART * number, STEPS_OF_PART * (number + 1)
        assert [of_rank["global step"] for of_rank in launched[1][size]] == [last * STRIDE] * size
        for step in range(first, last):
            keys = [int(key) for part in range(PARTS) for key in _part_of_keys(step, part)]
            reference.step(keys, global_step=step * STRIDE)
        before = len(reference.rows)
        reference.save(global_step=last * STRIDE)
        went += before - len(reference.rows)
        arrays = harness.saved_tables(os.path.join(launched[0], f"model.ckpt-{last * STRIDE}"))["table"]
        want = {key: row.last_step for key, row in reference.rows.items()}
        assert dict(zip_equal(arrays["keys"].tolist(), arrays["last_step"].tolist())) == want
    assert went > 5


def _keys(size: int, rank: int, step: int) -> list[int]:
    """A rank's keys in the `step`-th step of a program on `size` ranks."""
    return batches_of_keys(seed=100 * size + rank, steps=STEPS, largest=20)[step]


def _step(session: tf.compat.v1.Session, tables: list[Trained], keys: list[int]) -> list[list[float]]:
    """Trains all tables with the same keys; returns the looked-up values of each."""
    found = session.run([[one.rows, one.update] for one in tables], {one.keys: keys for one in tables})
    assert all(np.all(rows == rows[:, :1]) for rows, _ in found)
    return [rows[:, 0].tolist() for rows, _ in found]


# Without bounds, which are per rank, so that their total depends on the number of ranks.
UNBOUNDED = [case for case in CASES if "capacity" not in CASES[case][1]]


def _part(folder: str) -> list[list[list[float]]]:
    """By step and case, this rank's outputs, in training that continues from another number of ranks."""
    known = communicator()
    outputs = []
    with harness.graph_and_session() as session:
        tables = [Trained(f"table_{case}", **CASES[case][0]()) for case in UNBOUNDED]
        saver = train.Saver()
        last = train.latest_checkpoint(folder)
        if last is None:
            harness.initialize(session)
        else:
            saver.restore(session, last)
        for step in range(STEPS):
            outputs.append(_step(session, tables, _keys(known.size, known.rank, step)))
            if step % 4 == 3:
                saver.save(session, f"{folder}/model-of-{known.size}", global_step=step)
    return outputs


def test_counts_and_clocks_go_on_at_another_number_of_ranks(launched):
    tables = {case: ReferenceTable(default_value=DEFAULT, **CASES[case][1]) for case in UNBOUNDED}
    for size in SIZES:
        for i, case in enumerate(UNBOUNDED):
            for step in range(STEPS):
                keys = [_keys(size, rank, step) for rank in range(size)]
                values = tables[case].step([key for of_rank in keys for key in of_rank])
                if step % 4 == 3:
                    tables[case].save()
                ends = np.cumsum([len(of_rank) for of_rank in keys])[:-1]
                expected = [part.tolist() for part in np.split(np.array(values), ends)]
                found = [of_rank["another number"][step][i] for of_rank in launched[1][size]]
                assert found == expected, (case, size, step)
