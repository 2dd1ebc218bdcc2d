"""Admission counts and eviction clocks in training that continues on another number of ranks."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import harness
import ranks
from row_policy_model import CASES, DEFAULT, Trained, batches_of_keys
from row_policy_reference import ReferenceTable
from sparse_operation_kit.ranks.communicator import communicator

train = tf.compat.v1.train

SIZES = (2, 3, 1)
STEPS = 8


def _keys(size: int, rank: int, step: int) -> list[int]:
    """A rank's keys in the `step`-th step of a program on `size` ranks."""
    return batches_of_keys(seed=100 * size + rank, steps=STEPS, largest=20)[step]


def _step(session: tf.compat.v1.Session, tables: list[Trained], keys: list[int]) -> list[list[float]]:
    """Trains all tables with the same keys; returns the looked-up values of each."""
    found = session.run([[one.rows, one.update] for one in tables], {one.keys: keys for one in tables})
    assert all(np.all(rows == rows[:, :1]) for rows, _ in found)
    return [rows[:, 0].tolist() for rows, _ in found]


def _part(folder: str, cases: list[str]) -> list[list[list[float]]]:
    """By step and case, this rank's outputs, in training that continues from another number of ranks."""
    known = communicator()
    outputs = []
    with harness.graph_and_session() as session:
        tables = [Trained(f"table_{case}", **CASES[case][0]()) for case in cases]
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


def test_counts_and_clocks_go_on_at_another_number_of_ranks(tmp_path):
    # Without bounds, which are per rank, so that their total depends on the number of ranks.
    cases = [case for case in CASES if "capacity" not in CASES[case][1]]
    tables = {case: ReferenceTable(default_value=DEFAULT, **CASES[case][1]) for case in cases}
    for size in SIZES:
        found = ranks.run(_part, str(tmp_path), cases, ranks=size)
        for i, case in enumerate(cases):
            for step in range(STEPS):
                keys = [_keys(size, rank, step) for rank in range(size)]
                values = tables[case].step([key for of_rank in keys for key in of_rank])
                if step % 4 == 3:
                    tables[case].save()
                ends = np.cumsum([len(of_rank) for of_rank in keys])[:-1]
                expected = [part.tolist() for part in np.split(np.array(values), ends)]
                assert [of_rank[step][i] for of_rank in found] == expected, (case, size, step)
