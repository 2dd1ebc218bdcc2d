"""WorkQueue with parameter servers: one queue for all workers, on a server, in checkpoints."""

from __future__ import annotations

import collections
import contextlib
import json
import threading

import pytest
import tensorflow as tf

import local_cluster
import sparse_operation_kit as sok
from sparse_operation_kit.deeprec import WorkQueue

v1 = tf.compat.v1
SERVER = "/job:ps/task:0/device:CPU:0"
WORKS = [f"part-{number}" for number in range(7)]


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    with local_cluster.graph_on(2):  # starts the servers, before threads ask for them
        pass


def make_queue(works=WORKS, **options):
    return WorkQueue(works, **{"num_epochs": 2, "seed": 3, **options})


def from_dataset(queue):
    """The iterator's initializer and the next work."""
    iterator = v1.data.make_initializable_iterator(queue.input_dataset())
    return iterator.initializer, iterator.get_next()


def take(session, work, count=None):
    taken = []
    while count is None or len(taken) < count:
        try:
            taken.append(session.run(work).decode())
        except tf.errors.OutOfRangeError:
            break
    return taken


def in_one_process(count=None, checkpoint=None, **options):
    """The works that one process takes, and the checkpoint that it saves then."""
    with tf.Graph().as_default(), v1.Session() as session:
        work = WorkQueue(WORKS, **{"num_epochs": 2, "seed": 3, **options}).take()
        if checkpoint:
            v1.train.Saver().restore(session, checkpoint)
        session.run(v1.local_variables_initializer())
        return take(session, work, count)


def together(part, workers=2):
    """What `part(worker, started, graph)` returns in a thread and a graph for each worker.

    The first worker calls `started` when the others may begin.
    """
    ready, results = threading.Event(), [None] * workers

    def run(worker):
        with local_cluster.graph_on(2, worker) as graph:
            results[worker] = part(worker, ready.set if worker == 0 else ready.wait, graph)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@contextlib.contextmanager
def graph_and_session(worker=0):
    with local_cluster.graph_on(2, worker) as graph, local_cluster.session(graph) as session:
        yield session


@pytest.mark.parametrize("with_dataset", [False, True])
def test_workers_take_each_work_once(with_dataset):
    works = [str(number) for number in range(60)]

    def part(worker, started, graph):
        queue = make_queue(works, name=f"once_{with_dataset}", prefix="dir/")
        begin, work = from_dataset(queue) if with_dataset else (tf.no_op(), queue.take())
        with local_cluster.session(graph) as session:
            if worker == 0:
                session.run(v1.global_variables_initializer())
            started()
            session.run([begin, v1.local_variables_initializer()])
            return take(session, work)

    taken = sum(together(part), [])
    assert collections.Counter(taken) == {f"dir/{work}": 2 for work in works}


def test_the_order_is_that_of_one_process():
    with graph_and_session() as session:
        queue = make_queue(name="order")
        work, other = queue.take(), make_queue(name="by_graph", seed=None, num_epochs=3).take()
        assert len(queue) == 14 and queue.works == [name.encode() for name in WORKS]
        ops = [op for op in work.graph.get_operations() if op.name.startswith("order/")]
        assert {op.device for op in ops} == {SERVER}
        session.run(v1.global_variables_initializer())
        assert take(session, work) == in_one_process()
        assert take(session, other) == in_one_process(seed=7, num_epochs=3)


def test_workers_wait_for_the_chief():
    with graph_and_session(1) as session:
        work = make_queue(name="not_begun").take()
        missing = v1.report_uninitialized_variables()
        session.run(v1.local_variables_initializer())
        assert session.run(missing).tolist() == [b"not_begun/left"]
        with pytest.raises(tf.errors.FailedPreconditionError):
            session.run(work)
        session.run(v1.global_variables_initializer())
        assert session.run(missing).tolist() == []


def test_checkpoints_restore_on_servers_and_in_one_process(tmp_path):
    everything = in_one_process()
    for sharded in (False, True):
        with graph_and_session() as session:
            work = make_queue(name="saved").take()
            sok.Init(global_batch_size=2)
            v1.get_variable("weight", [2])
            sok.EmbeddingVariable("table", 2)
            saver = v1.train.Saver(sharded=sharded)
            session.run(v1.global_variables_initializer())
            taken = take(session, work, 5)
            path = saver.save(session, str(tmp_path / f"{sharded}"))
            names = [name for name, _ in tf.train.list_variables(path) if name.startswith("saved")]
            assert names == ["saved_digest", "saved_works"]
            take(session, work, 4)  # what was taken after the save is given again
            saver.restore(session, path)
            assert taken + take(session, work) == everything
        assert taken + in_one_process(checkpoint=path, name="saved", seed=9) == everything


def test_a_checkpoint_of_one_process_restores_on_servers(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        work = WorkQueue(WORKS, 2, seed=3).take()
        session.run(v1.local_variables_initializer())
        taken = take(session, work, 5)
        path = v1.train.Saver().save(session, str(tmp_path / "saved"))
    with graph_and_session() as session:
        work = make_queue(seed=9).take()
        saver = v1.train.Saver()
        saver.restore(session, path)
        session.run(v1.local_variables_initializer())
        assert taken + take(session, work) == in_one_process()


def test_other_works_begin_anew(tmp_path):
    with graph_and_session() as session:
        work = make_queue(name="anew", num_epochs=1, shuffle=False).take()
        session.run(v1.global_variables_initializer())
        take(session, work, 2)
        path = v1.train.Saver().save(session, str(tmp_path / "saved"))
    with graph_and_session() as session:
        work = make_queue(WORKS[:3], name="anew", num_epochs=1, shuffle=False).take()
        v1.train.Saver().restore(session, path)
        assert take(session, work) == WORKS[:3]


@pytest.mark.parametrize("other", [{"works": WORKS[::-1]}, {"num_epochs": 3}])
def test_a_worker_with_other_works_is_refused(other):
    with graph_and_session() as session:
        work = make_queue(name="agreed").take()
        session.run(v1.global_variables_initializer())
        with graph_and_session(1) as second:
            queue = make_queue(name="agreed", **other)
            begin, from_files = from_dataset(queue)
            second.run(begin)
            for wrong in (queue.take(), from_files):
                with pytest.raises(tf.errors.InvalidArgumentError, match="agreed.*other works.* same order"):
                    second.run(wrong)
        assert take(session, work) == in_one_process()  # nothing was lost


def test_monitored_workers_and_a_restart(tmp_path):
    def run(stop):
        def part(worker, started, graph):
            queue = make_queue(name="monitored")
            begin, work = from_dataset(queue)
            train = v1.assign_add(v1.train.get_or_create_global_step(), 1)
            scaffold = v1.train.Scaffold(local_init_op=tf.group(v1.local_variables_initializer(), begin))
            taken = []
            with v1.train.MonitoredTrainingSession(
                graph._target,
                worker == 0,
                str(tmp_path),
                scaffold,
                hooks=[v1.train.StopAtStepHook(last_step=stop)],
                max_wait_secs=60,
            ) as session:
                started()
                while not session.should_stop():
                    taken.append(session.run([work, train])[0].decode())
            return taken

        return sum(together(part, workers=1), [])

    assert run(5) + run(100) == in_one_process()


def test_readers_and_summaries(tmp_path):
    (tmp_path / "1.txt").write_text("one\ntwo\n")
    (tmp_path / "2.txt").write_text("three\n")
    with local_cluster.graph_on(2) as graph:
        queue = WorkQueue(["1.txt", "2.txt"], shuffle=False, prefix=f"{tmp_path}/")
        queue.add_summary()
        _, line = v1.TextLineReader().read(queue.input_producer())
        summary = v1.summary.merge_all()
        found = []
        with v1.train.MonitoredTrainingSession(graph._target) as session:
            value = v1.Summary.FromString(session.run(summary)).value[0]
            assert value.tag == "work_queue/fraction_of_2_full"
            while not session.should_stop():
                found.append(session.run(line).decode())
    assert found == ["one", "two", "three"]


def test_servers_of_tf_config(monkeypatch):
    cluster = {"ps": ["host:1", "host:2"], "chief": ["host:3"], "worker": ["host:4"]}
    for kind in ("worker", "chief", "evaluator"):
        config = {"cluster": cluster, "task": {"type": kind, "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        with tf.Graph().as_default():
            device = WorkQueue(WORKS).take().device
        assert device == ("/device:CPU:0" if kind == "evaluator" else SERVER)
