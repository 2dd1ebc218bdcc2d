"""Measures the milliseconds of one exchange between ranks, compared with Horovod's `hvd.alltoall`.

Start it on the ranks, with Horovod's settings:
  SOK_BUILD=0 HOROVOD_CYCLE_TIME=0.1 mpirun -np 2 tools/python.sh benchmarks/exchange_latency.py

Each size is measured with a constant number of words per step, and with a number that varies from step to
step. README.md explains the table.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from sparse_operation_kit import native  # noqa: E402

tf1 = tf.compat.v1

_WORDS = {"64 B": 8, "64 KB": 8192, "4 MB": 524288}  # that a rank sends


class _Side:
    """One way to exchange fed words."""

    def __init__(self, name: str, exchange: Callable) -> None:
        self.name = name
        self._words = tf1.placeholder(tf.int64, [None])
        self._splits = tf1.placeholder(tf.int32, [None])
        received, _ = exchange(self._words, self._splits)
        # An op, so that the received words are not copied to NumPy.
        self._target = tf.size(received).op

    def milliseconds(self, session: tf1.Session, counts: Sequence[int]) -> float:
        """Milliseconds per call, on average over calls that send `counts[i]` words each."""
        feeds = [{self._words: _BUFFER[:count], self._splits: _splits(count)} for count in counts]
        start = time.perf_counter()
        for feed in feeds:
            session.run(self._target, feed)
        return (time.perf_counter() - start) * 1e3 / len(feeds)


_BUFFER = np.arange(2 * max(_WORDS.values()))


def _splits(count: int) -> list[int]:
    size = hvd.size()
    return [count // size + (rank < count % size) for rank in range(size)]


def _chain(words: tf.Tensor, splits: tf.Tensor, one: Callable) -> tuple[tf.Tensor, tf.Tensor]:
    """Three exchanges, each of the words received from the previous one, as in a training step of a group."""
    for name in ("first", "second", "third"):
        words, splits = one(words, splits, name)
    return words, splits


def _sok(words: tf.Tensor, splits: tf.Tensor, name: str = "sok") -> tuple[tf.Tensor, tf.Tensor]:
    return native.horovod_ops().sok_exchange(words, splits, exchange_name=f"exchange.{name}")


def _horovod(words: tf.Tensor, splits: tf.Tensor, name: str = "horovod") -> tuple[tf.Tensor, tf.Tensor]:
    return hvd.alltoall(words, splits=splits, name=f"alltoall.{name}")


def _counts(words: int, varying: bool, calls: int, round_number: int) -> list[int]:
    """The number of words of each call in a round; their mean is about `words`."""
    if not varying:
        return [words] * calls
    rng = np.random.default_rng([round_number, hvd.rank()])
    return [int(count) for count in rng.integers(words // 2, words + words // 2 + 1, calls)]


def _measure(session: tf1.Session, sides: list[_Side], rounds: list[list[int]]) -> list[float]:
    """The median of each side over interleaved rounds, without the first, which is a warm-up."""
    taken = [[] for _ in sides]
    for counts in rounds:
        for side, times in zip(sides, taken):
            times.append(side.milliseconds(session, counts))
    return [statistics.median(times[1:]) for times in taken]


def main(arguments: Sequence[str]) -> None:
    """Runs the program on this rank; rank 0 prints the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=20, help="calls of each side in a round")
    flags = parser.parse_args(arguments)
    hvd.init()
    say = print if hvd.rank() == 0 else lambda *_, **__: None
    config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    with tf.Graph().as_default(), tf1.Session(config=config) as session:
        sides = [
            _Side("SokExchange", _sok),
            _Side("hvd.alltoall", _horovod),
            _Side("3 × SokExchange", lambda words, splits: _chain(words, splits, _sok)),
            _Side("3 × hvd.alltoall", lambda words, splits: _chain(words, splits, _horovod)),
        ]
        transport = "MPI" if hvd.mpi_enabled() else "Gloo"
        cycle = os.environ.get("HOROVOD_CYCLE_TIME", "1")
        say(f"{hvd.size()} ranks, {transport}, cycle time {cycle} ms; medians in ms")
        say("| a rank sends | in each step | " + " | ".join(side.name for side in sides) + " |")
        say("|---|---|" + "---|" * len(sides))
        for label, words in _WORDS.items():
            for varying in (False, True):
                rounds = [_counts(words, varying, flags.calls, i) for i in range(flags.rounds + 1)]
                medians = _measure(session, sides, rounds)
                numbers = " | ".join(f"{median:.2f}" for median in medians)
                say(f"| {label} | {'varying' if varying else 'the same'} | {numbers} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
