"""Processes of parameter servers: the command for one, DeepRec's protocols, programs that join a server."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

import local_cluster
import sparse_operation_kit as sok
from sparse_operation_kit import server
from sparse_operation_kit.deeprec import server_protocols

v1 = tf.compat.v1
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


def test_deeprecs_protocols_are_grpc(monkeypatch, caplog):
    monkeypatch.setattr(server_protocols, "_told", set())
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
