# Not on GPUs: it always has the fake one
"""Memory of tables on a GPU whose memory TensorFlow takes when a session starts, as it does by default."""

from __future__ import annotations

import gc
import json
import re
import sys

import numpy as np
import tensorflow as tf

import fake_gpu_device
import forked
import sparse_operation_kit as sok
from harness import init_and_initialize

v1 = tf.compat.v1

DIM = 256
ROW_BYTES = 4 * DIM
MEMORY = 8 << 20
FOR_OTHERS = 1 << 20  # the plugin does not let TensorFlow take it
fake_gpu_device.cuda_runtime().limit_memory(MEMORY + FOR_OTHERS)


class Program:
    """A table, and lookups in it."""

    def __init__(self):
        self.table = sok.EmbeddingVariable(name="clicks", dim=DIM, initializer=0.0)
        self.keys = v1.placeholder(tf.int64, [None])
        self.lookup = tf.nn.embedding_lookup(self.table, self.keys).op

    def insert(self, session, first, count):
        session.run(self.lookup, {self.keys: np.arange(first, first + count)})

    def fill(self, session):
        """Inserts keys until memory runs out. Returns the number of rows and the error."""
        rows = 0
        for count in (256, 16):
            while True:
                try:
                    self.insert(session, rows, count)
                except tf.errors.ResourceExhaustedError as error:
                    message = str(error)
                    break
                rows += count
        return rows, message


def test_a_table_grows_to_nearly_all_that_tensorflow_has():
    for _ in range(2):  # a deleted session has returned the memory
        with tf.Graph().as_default(), v1.Session() as session:
            program = Program()
            init_and_initialize(session)
            rows, error = program.fill(session)
            assert session.run(program.table.size()) == rows
            assert rows * ROW_BYTES >= 0.9 * MEMORY
            # The variable, what it has, what it asked for, and what TensorFlow has given out.
            pattern = (
                rf"'clicks' with {rows} rows in (\d+) bytes: cannot allocate (\d+) bytes on the device: "
                r"TensorFlow uses (\d+) bytes of its (\d+)"
            )
            has, asked, used, of_all = (int(number) for number in re.search(pattern, error).groups())
            assert rows * ROW_BYTES <= has <= used <= of_all <= MEMORY
            assert used + asked > 0.95 * MEMORY
            # The table is as it was, and training can go on.
            program.insert(session, 0, 16)
            assert session.run(program.table.size()) == rows
        del session, program
        gc.collect()


def test_steps_in_a_session_take_no_memory_from_cuda():
    runtime = fake_gpu_device.cuda_runtime()
    with tf.Graph().as_default(), fake_gpu_device.session() as session:
        table = sok.EmbeddingVariable(name="clicks", dim=2)
        keys = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, keys)
        step = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows))
        before = runtime.enqueued_work().allocations
        init_and_initialize(session)
        for first in range(0, 30, 10):
            session.run(step, {keys: np.arange(first, 3 * first + 5)})
        assert runtime.enqueued_work().allocations - before <= 1  # TensorFlow's own, of all memory


def report(option, value):
    """Prints the bytes that a session with a GPU option takes for a small table, and those of a full one."""
    config = v1.ConfigProto()
    setattr(config.gpu_options, option, value)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        program = Program()
        init_and_initialize(session)
        program.insert(session, 0, 16)
        taken = fake_gpu_device.cuda_runtime().bytes_in_use()
        rows, _ = program.fill(session)
        print(json.dumps([taken, rows * ROW_BYTES]))


def reported(option, value):
    # TensorFlow keeps the options of a process's first session.
    return json.loads(forked.succeeded(forked.run(__file__, option, json.dumps(value), timeout=120)))


def test_a_table_grows_with_what_tensorflow_takes():
    taken, full = reported("allow_growth", True)
    assert taken < MEMORY / 2 and full >= 0.9 * MEMORY


def test_a_table_stays_within_tensorflows_part():
    part = (MEMORY + FOR_OTHERS) // 2
    taken, full = reported("per_process_gpu_memory_fraction", 0.5)
    assert 0.9 * part <= taken <= part and 0.85 * part <= full <= part


if __name__ == "__main__":
    report(sys.argv[1], json.loads(sys.argv[2]))
