# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Exports of a model in TensorFlow's own ops from several ranks, and from the chief of parameter servers."""

import os
import time

import numpy as np
import pytest
import tensorflow as tf

import harness
import local_cluster
import ranks
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.serving import session_exports

v1 = tf.compat.v1
KEYS = np.arange(-10, 14)
FEEDS = {"ids": [*KEYS.tolist(), 99]}


class Model:
    """A table with a filter and one without, trained by the ranks' own ids, and a dense variable."""

    def __init__(self, keys):
        admission = sok.CounterFilter(2)
        option = sok.InitializerOption(default_value_no_permission=-2.0)
        tables = [
            sok.EmbeddingVariable("plain", 3, initializer=0.125),
            sok.EmbeddingVariable("filtered", 2, admission=admission, initializer=option),
        ]
        self.ids = v1.placeholder(tf.int64, [None], "ids")
        bags = tf.SparseTensor(tf.stack([self.ids * 0, self.ids], 1), self.ids, [1, 100])
        kernel = v1.get_variable("kernel", [3, 1], initializer=v1.ones_initializer())
        rows = tf.nn.embedding_lookup(tables[0], self.ids)
        sums = sok.group_embedding_lookup_sparse(tables, [bags, bags], ["sum", "mean"])
        self.outputs = {"rows": rows, "logits": rows @ kernel, "sums": sums[0], "means": sums[1]}
        trained = [tf.nn.embedding_lookup(table, tf.constant(keys)) for table in tables]
        loss = tf.add_n([tf.reduce_sum(tf.sin(one * 2)) for one in trained])
        self.train = v1.train.AdagradOptimizer(0.5).minimize(loss)

    def export(self, session, folder):
        return sok.serving.export(session, folder, {"ids": self.ids}, self.outputs)


def _export(folder):
    known = communicator()
    with harness.graph_and_session() as session:
        model = Model(KEYS[known.rank :: known.size])
        harness.initialize(session)
        for _ in range(2):
            session.run(model.train)
        exported = model.export(session, folder)
        assert os.path.isdir(exported)
        with pytest.raises(Exception, match="exists already" if known.rank == 0 else "another rank failed"):
            model.export(session, folder)
        return exported


def _served(folder):
    return saved_files.serve_model(folder, FEEDS, "sparse_operation_kit")["serving_default"]


def _assert_close(found, wanted):
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_model_has_the_rows_of_all_ranks(tmp_path):
    folders = ranks.run(_export, str(tmp_path / "ranks"), ranks=3)
    assert folders == [str(tmp_path / "ranks")] * 3
    _export(str(tmp_path / "one"))
    wanted = _served(tmp_path / "one")
    assert np.unique(wanted["rows"]).size > 1
    _assert_close(_served(tmp_path / "ranks"), wanted)
    assert sorted(os.listdir(tmp_path)) == ["one", "one.py", "ranks", "ranks.py"]


def _export_under_a_strategy(folder):
    from sparse_operation_kit import deeprec  # noqa: F401 - gives tf DeepRec's names

    # Variables begin with rank 0's values, which takes all ranks.
    tf.config.experimental.enable_distributed_strategy("collective")
    with harness.graph_and_session() as session:
        model = Model(KEYS)
        harness.initialize(session)
        session.run(model.train)
        model.export(session, folder)
        # Without the filter's rows, as lookups count their ids.
        return session.run({name: model.outputs[name] for name in ("rows", "logits")}, {model.ids: KEYS})


def _export_alone(folder):
    session_exports._PATIENCE_SECONDS = 2
    with harness.graph_and_session() as session:
        model = Model(KEYS)
        harness.initialize(session)
        if communicator().rank == 0:
            with pytest.raises(
                tf.errors.FailedPreconditionError, match="not all 2 ranks have called it within 2"
            ):
                model.export(session, folder)
        else:
            time.sleep(6)  # It trains, and does not export.


def test_variables_that_all_ranks_initialize_together_and_a_rank_that_exports_alone_raises(tmp_path):
    exports = [(_export_under_a_strategy, str(tmp_path / "model")), (_export_alone, str(tmp_path / "alone"))]
    wanted = ranks.run_checks(exports, ranks=2)["_export_under_a_strategy"][0]
    assert os.listdir(tmp_path) == ["model"]
    _assert_close({name: value[: len(KEYS)] for name, value in _served(tmp_path / "model").items()}, wanted)


def test_the_chief_exports_the_rows_of_all_servers(tmp_path):
    for servers in (0, 2):
        with local_cluster.graph_on(servers) as graph:
            model = Model(KEYS)
            with local_cluster.started(graph) as session:
                for _ in range(2):
                    session.run(model.train)
                model.export(session, tmp_path / str(servers))
    _assert_close(_served(tmp_path / "2"), _served(tmp_path / "0"))
