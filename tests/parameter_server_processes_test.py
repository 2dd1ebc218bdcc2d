# Not on GPUs: graphs, names and libraries
"""Processes of parameter servers: the command for one, DeepRec's protocols, programs that join a server.

And a WorkQueue for all workers, on a server and in checkpoints.
"""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
import tensorflow as tf

import local_cluster
import sparse_operation_kit as sok
from sparse_operation_kit import server
from sparse_operation_kit.deeprec import WorkQueue, config_fields

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
        work = make_queue(**options).take()
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


def test_servers_of_tf_config(monkeypatch):
    cluster = {"ps": ["host:1", "host:2"], "chief": ["host:3"], "worker": ["host:4"]}
    for kind in ("worker", "chief", "evaluator"):
        config = {"cluster": cluster, "task": {"type": kind, "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        with tf.Graph().as_default():
            device = WorkQueue(WORKS).take().device
        assert device == ("/device:CPU:0" if kind == "evaluator" else SERVER)


CLUSTER = {"ps": ["localhost:1", "localhost:2"], "worker": ["localhost:3"]}

# A program for parameter servers, as DeepRec's model zoo has them.
_PROGRAM = """
import json
import os

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
server = tf.train.Server(
    config["cluster"], job_name=task["type"], task_index=task["index"], protocol="grpc++"
)
print("serves", flush=True)
server.join()
"""


def config(cluster=CLUSTER, kind="ps", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, [], "there is no cluster: set TF_CONFIG, or give --cluster"),
        ("{", [], r"TF_CONFIG is not JSON \(.*\): \{"),
        ("[]", [], r"TF_CONFIG must be a JSON object, not \[\]"),
        ("{}", [], "TF_CONFIG must have a cluster"),
        (json.dumps({"cluster": CLUSTER}), [], "which task of job 'ps' is this"),
        (json.dumps({"cluster": CLUSTER, "task": 1}), [], "the task of TF_CONFIG .* be 1"),
        (config({"ps": "localhost:1"}), [], "job 'ps' of the cluster must be a list of host:port"),
        (config({"ps": ["localhost"]}), [], r"must be a list of host:port, not \['localhost'\]"),
        (config(index=2), [], "task 2 is not in job 'ps' of the cluster, which has 2"),
        (config(index="0"), [], "task '0' is not in job 'ps'"),
        (config(kind="worker"), [], "of type 'worker', not 'ps'"),
        (config(), ["--task_index", "-1"], "task -1 is not in job 'ps'"),
        (config(), ["--job_name", "chief"], "job 'chief' is not in the cluster, whose jobs are ps, worker"),
        (None, ["--cluster", "{"], "--cluster is not JSON"),
        (None, ["--cluster", json.dumps(CLUSTER)], "which task of job 'ps' is this"),
        (None, ["--cluster", "{}", "--task_index", "0"], "--cluster must have a cluster"),
    ],
)
def test_a_wrong_task_is_an_error(monkeypatch, capsys, text, arguments, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(SystemExit) as ended:
        server.main(arguments)
    assert ended.value.code == 2
    assert re.search(f"error: .*{message}", capsys.readouterr().err)


def test_a_port_in_use_is_an_error(capsys):
    with local_cluster.graph_on(1) as graph:
        address = "127.0.0.1:" + graph._target.rpartition(":")[2]
    with pytest.raises(SystemExit):
        server.main(["--cluster", json.dumps({"ps": [address]}), "--task_index", "0"])
    assert f"of {address} cannot be used: Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize("program", [False, True])
def test_a_server_serves_until_it_is_ended(tmp_path, program):
    ports = local_cluster.free_ports(2)
    cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
    (tmp_path / "train.py").write_text(_PROGRAM)
    command = ["sparse_operation_kit.deeprec", str(tmp_path / "train.py")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TF_CONFIG": config(cluster),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", *(command if program else ["sparse_operation_kit.server"])],
        env=environment,
        stdout=subprocess.PIPE,
        universal_newlines=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == ("serves\n" if program else f"parameter server 0 of 1 serves at {cluster['ps'][0]}\n")
        worker = v1.train.Server(cluster, job_name="worker", task_index=0)
        with tf.Graph().as_default(), v1.device(v1.train.replica_device_setter(cluster=cluster)):
            sok.Init(global_batch_size=2)
            table = sok.EmbeddingVariable("table", 2, initializer=1.0)
            rows = tf.nn.embedding_lookup(table, tf.constant([3, 4], tf.int64))
            train = v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(rows))
            with v1.Session(worker.target) as session:
                session.run(v1.global_variables_initializer())
                session.run(train)
                assert session.run(rows).tolist() == [[0.5, 0.5]] * 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == (-signal.SIGTERM if program else 0)
    finally:
        process.kill()
        process.wait()


def test_deeprecs_protocols_are_grpc(caplog):
    config_fields._tell.cache_clear()
    with caplog.at_level(logging.WARNING):
        made = [
            v1.train.Server({"local": [f"127.0.0.1:{port}"]}, protocol=protocol, start=False)
            for port, protocol in zip(
                local_cluster.free_ports(4), ("grpc++", "grpc++", "star_server", "grpc")
            )
        ]
    assert [one.server_def.protocol for one in made] == ["grpc"] * 4
    told = [record.getMessage() for record in caplog.records if "protocol" in record.getMessage()]
    assert [text.split("'")[2] for text in told] == ["grpc++", "star_server"]
    definition = tf.train.ServerDef(job_name="local", protocol="star_server")
    definition.cluster.job.add(name="local").tasks[0] = f"127.0.0.1:{local_cluster.free_ports(1)[0]}"
    assert tf.distribute.Server(definition, start=False).server_def.protocol == "grpc"
