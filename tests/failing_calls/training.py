"""A training whose state after each step is known, whatever was saved and restored before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit.deeprec import WorkQueue
from sparse_operation_kit.tables.storage_option import StorageOption

v1 = tf.compat.v1
TABLES = ("items", "users")
# Conditions of version 2 start TensorFlow's threads while a graph is built: the process could not be forked.
v1.disable_control_flow_v2()
_WORKS = [str(number) for number in range(10_000)]


def _keys(step: int) -> list[np.ndarray]:
    """The keys that step `step` trains, by table: other ones in each step, and some again."""
    return [np.arange(step, step + 9) * 7 % 31 - 5, np.arange(0, step % 5 + 3) * 11 - 2**40]


class Training:
    """Two tables with an optimizer's slots and with filters, a variable, and a queue of works."""

    def __init__(
        self, before_initializers: Callable[[], None] = lambda: None, memory: str | StorageOption = "device"
    ) -> None:
        """Builds a graph. Calls `before_initializers` in it after the variables; `memory` is the tables'."""
        self.graph = tf.Graph()
        with self.graph.as_default():
            self._init = sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
            self.tables = [
                sok.EmbeddingVariable("items", 4, admission=sok.CounterFilter(2), memory=memory),
                sok.EmbeddingVariable("users", 2, admission=sok.CBFFilter(2, 100, 0.01), memory=memory),
            ]
            kernel = v1.get_variable("kernel", [6], initializer=v1.ones_initializer())
            self.keys = [v1.placeholder(tf.int64, [None]) for _ in self.tables]
            rows = [tf.nn.embedding_lookup(table, keys) for table, keys in zip(self.tables, self.keys)]
            sums = [tf.reduce_sum(tf.sin(one), axis=0) for one in rows]
            self.step = v1.train.get_or_create_global_step()
            loss = tf.reduce_sum(tf.concat(sums, 0) * kernel)
            train = sok.tf.keras.optimizers.LazyAdamOptimizer(0.1).minimize(loss, global_step=self.step)
            self.work = WorkQueue(_WORKS, shuffle=False).take()
            with tf.control_dependencies([self.work]):
                self.train = tf.group(train)
            self.reader = harness.TableReader(*self.tables)
            self.kernel = kernel
            # Unless it starts anew, which the queue does not.
            self.takes_works_in_order = True
            before_initializers()
            self.initializers = [v1.global_variables_initializer(), v1.local_variables_initializer()]
        self._session: v1.Session | None = None

    @property
    def session(self) -> v1.Session:
        """Begins a session when it is first asked for: until then, the process can be forked."""
        if self._session is None:
            self._session = v1.Session(graph=self.graph, config=harness.without_optimizations())
            self._session.run(self._init)
        return self._session

    def initialize(self) -> None:
        """Starts anew, at step 0."""
        self.session.run(self.initializers)

    def steps(self) -> int:
        """Returns the number of steps that were taken."""
        return int(self.session.run(self.step))

    def take_steps(self, count: int = 1) -> None:
        """Trains steps, each of which takes the next work."""
        for step in range(self.steps(), self.steps() + count):
            _, work = self.session.run([self.train, self.work], dict(zip(self.keys, _keys(step))))
            assert not self.takes_works_in_order or work == b"%d" % step, (work, step)

    def state(self) -> list[np.ndarray]:
        """Returns the variables' values; of the tables, the keys and rows in the order of the keys."""
        found = [self.session.run(self.kernel)]
        for keys, rows in self.reader.read(self.session):
            order = np.argsort(keys)
            found += [keys[order], rows[order]]
        return found


class Reference:
    """The right states, of a training that is never saved.

    Attributes:
      states: Those that are known, from step 0 on.
    """

    def __init__(self) -> None:
        """Knows no state."""
        self.states: list[list[np.ndarray]] = []
        self._training: Training | None = None

    def state(self, step: int) -> list[np.ndarray]:
        """Returns the state after `step` steps."""
        if self._training is None and len(self.states) <= step:
            self._training = Training()
            self._training.initialize()
            self.states = [self._training.state()]
        while len(self.states) <= step:
            self._training.take_steps()
            self.states.append(self._training.state())
        return self.states[step]

    def check(self, training: Training) -> int:
        """Checks a training's state, and that its next step gives the next one; returns the step before.

        What a step needs, such as slots and filters, is so checked too.
        """
        step = training.steps()
        self._compare(training, step)
        training.take_steps()
        self._compare(training, step + 1)
        return step

    def _compare(self, training: Training, step: int) -> None:
        for found, right in zip(training.state(), self.state(step)):
            np.testing.assert_array_equal(found, right, f"the state of step {step}")
