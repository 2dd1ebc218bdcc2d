"""Admission, eviction and bounds across saves and restores, compared with a slow reference."""

import pytest
import tensorflow as tf

import harness
from row_policy_model import CASES, DEFAULT, Trained, batches_of_keys
from row_policy_reference import ReferenceTable
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder

pytestmark = pytest.mark.cases_on_gpu(1)

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
