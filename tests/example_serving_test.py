# Tags: slow, versions, old_version
# Not on GPUs: a program; the tests gpu_* have one
"""examples/serving: a server of TensorFlow Serving's protocol answers from models as they are exported."""

import contextlib
import importlib
import pathlib
import re
import signal
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import forked
import harness
import sparse_operation_kit as sok
from example_support import EXAMPLES
from sparse_operation_kit.lookup.group import reading_only

pytest.importorskip("tensorflow_serving", reason="tensorflow-serving-api is not installed")
grpc = importlib.import_module("grpc")
sys.path.insert(0, str(EXAMPLES / "serving"))
client = importlib.import_module("client")

v1 = tf.compat.v1
VERSIONS = 3


@contextlib.contextmanager
def server(base_path, *flags):
    """A server of the models in a folder, in a process that imports this library only with --library."""
    log = pathlib.Path(f"{base_path}.log")
    process = forked.start(
        EXAMPLES / "serving" / "server.py",
        *("--model_base_path", str(base_path), "--model_name", "m", "--port", "0"),
        *("--file_system_poll_wait_seconds", "0.05", *flags),
        output=log,
    )
    try:
        address = wait_for(log, r"listening on (\S+)", process)
        yield address
        assert process.poll() is None, log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def wait_for(log, pattern, process):
    for _ in range(1200):
        found = re.search(pattern, log.read_text() if log.exists() else "")
        if found:
            return found.group(1)
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())


class Trainer(threading.Thread):
    """Trains in a thread of its own, and exports versions; the session's own answers are in `wanted`."""

    def __init__(self, base_path, with_library, asked):
        super().__init__(daemon=True)
        self._base_path, self._with_library = base_path, with_library
        self._asked = asked
        self.answered = {number: threading.Event() for number in range(1, VERSIONS + 1)}
        self.wanted, self.steps, self.error = {}, 0, None

    def run(self):
        try:
            self._train()
        except Exception as error:
            self.error = error

    def _train(self):
        with harness.graph_and_session() as session:
            inputs = {
                "ids": v1.placeholder(tf.int64, [None, 3], "ids"),
                "words": v1.placeholder(tf.string, [None], "words"),
            }
            tables = [sok.EmbeddingVariable(name, 4, initializer=0.5) for name in ("items", "words")]
            hashed = tf.strings.to_hash_bucket_fast(inputs["words"], 50)

            def build():
                rows = tf.reshape(tf.nn.embedding_lookup(tables[0], inputs["ids"]), [-1, 12])
                both = tf.concat([rows, tf.nn.embedding_lookup(tables[1], hashed)], 1)
                with v1.variable_scope("network", reuse=v1.AUTO_REUSE):
                    kernel = v1.get_variable("kernel", [16, 1], initializer=v1.ones_initializer())
                return {"scores": tf.matmul(both, kernel)[:, 0], "rows": rows}

            loss = tf.reduce_sum(tf.square(build()["scores"] - 1))
            with reading_only():
                outputs = build()
            step = v1.train.AdamOptimizer(0.05).minimize(loss)
            harness.initialize(session)
            rng = np.random.default_rng(1)
            for version in range(1, VERSIONS + 1):
                # Each version but the first only after the one before has answered.
                while self.steps < 5 * version or (version > 1 and not self.answered[version - 1].is_set()):
                    session.run(
                        step,
                        {
                            inputs["ids"]: rng.integers(-20, 20, [8, 3]),
                            inputs["words"]: rng.choice(["red", "blue", "green"], 8),
                        },
                    )
                    self.steps += 1
                feed = {inputs[name]: value for name, value in self._asked.items()}
                self.wanted[version] = session.run(outputs, feed)
                folder = self._base_path / str(version)
                if self._with_library:
                    beside = self._base_path / f"being-written-{version}"
                    v1.saved_model.simple_save(session, str(beside), inputs, outputs)
                    beside.rename(folder)
                else:
                    sok.serving.export(session, folder, inputs, outputs)


@pytest.mark.parametrize("flags", [(), ("--library",)], ids=["stock", "library"])
def test_answers_are_those_of_each_version_while_training_goes_on(tmp_path, flags):
    asked = {
        "ids": np.array([[3, -7, 90], [0, 5, 5]]),
        "words": np.array([b"green", b"mauve"], object),
    }
    base_path = tmp_path / "models"
    base_path.mkdir()
    answers, trained = [], {}
    with server(base_path, *flags) as address:
        to = client.Client(address, "m")
        with pytest.raises(grpc.RpcError) as nothing:
            to.predict(asked)
        assert nothing.value.code() == grpc.StatusCode.NOT_FOUND
        trainer = Trainer(base_path, bool(flags), asked)
        trainer.start()
        deadline = time.monotonic() + 100
        while not answers or answers[-1][1] < VERSIONS:
            assert trainer.error is None and time.monotonic() < deadline, trainer.error
            try:
                answers.append(to.predict(asked))
            except grpc.RpcError as error:
                assert not answers and error.code() == grpc.StatusCode.NOT_FOUND
                time.sleep(0.01)
                continue
            version = answers[-1][1]
            trained.setdefault(version, []).append(trainer.steps)
            # Ten answers later, so that training has gone on between requests.
            if len(trained[version]) >= 10:
                trainer.answered[version].set()
        trainer.join(60)
        assert trainer.error is None
        check_requests_that_do_not_fit(address, asked)
    versions = [version for _, version in answers]
    assert versions == sorted(versions) and set(versions) == {1, 2, 3}
    for outputs, version in answers:
        assert outputs.keys() == trainer.wanted[version].keys()
        for name, value in outputs.items():
            np.testing.assert_allclose(value, trainer.wanted[version][name], rtol=1e-5, err_msg=name)
    assert not np.allclose(trainer.wanted[1]["scores"], trainer.wanted[2]["scores"])
    # The server answered while steps were made.
    assert all(len(set(trained[version])) > 1 for version in (1, 2))


@pytest.mark.skipif(not hasattr(v1, "estimator"), reason="this TensorFlow has no Estimator")
@pytest.mark.parametrize("program", ["wide_and_deep", "din", "dssm"])
def test_programs_of_the_zoo_are_served_from_both_exports(tmp_path, monkeypatch, program):
    monkeypatch.syspath_prepend(str(EXAMPLES / "deeprec" / "zoo"))
    run = importlib.import_module("zoo_run")
    own = run.session_config
    monkeypatch.setattr(run, "session_config", lambda flags: harness.without_optimizations(own(flags)))
    short = ["--samples", "600", "--steps", "6", "--batch_size", "64", "--embedding_dim", "4"]
    stock, library = tmp_path / "stock", tmp_path / "library"
    with server(stock) as to_stock, server(library, "--library") as to_library:
        results = importlib.import_module(program).main(
            [*short, "--export", str(stock), "--export_library", str(library)]
        )
        ((label, wanted),) = results["served"]["outputs"].items()
        assert wanted.size == 64 and len(np.unique(wanted)) > 20
        for address in (to_stock, to_library):
            answer = when_loaded(client.Client(address, "m"), results["served"]["inputs"])
            assert list(answer) == [label]
            np.testing.assert_allclose(answer[label], wanted, rtol=1e-5)


def when_loaded(to, inputs):
    """The answer to a request as soon as there is a version."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return to.predict(inputs)[0]
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def check_requests_that_do_not_fit(address, asked):
    to = client.Client(address, "m")
    code = grpc.StatusCode
    for model, inputs, version, status, reason in [
        ("n", asked, None, code.NOT_FOUND, "There is no model 'n'"),
        ("m", asked, 1, code.NOT_FOUND, "'m' has the version 3, not 1"),
        ("m", {"ids": asked["ids"]}, None, code.INVALID_ARGUMENT, r"The inputs are \['ids'\].*'words'"),
        ("m", {**asked, "ids": np.ones([2, 3])}, None, code.INVALID_ARGUMENT, "'ids' is float64, not int64"),
        ("m", {**asked, "ids": asked["ids"][:, :2]}, None, code.INVALID_ARGUMENT, "shape"),
        ("m", {**asked, "ids": asked["ids"][:1]}, None, code.INVALID_ARGUMENT, "ConcatOp"),
    ]:
        with pytest.raises(grpc.RpcError) as error:
            client.Client(address, model).predict(inputs, version)
        assert error.value.code() == status
        assert re.search(reason, error.value.details())
    assert to.predict(asked, 3)[1] == 3
