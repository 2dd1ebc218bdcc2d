"""NumPy arrays between ranks, outside of steps: exchanges, and errors that all ranks raise together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from sparse_operation_kit.ranks.communicator import communicator

_T = TypeVar("_T")
# The most bytes of an error that the other ranks are told.
_ERROR_BYTES = 2000
_LARGEST = np.iinfo(np.int64).max


class ArrayExchange:
    """Exchanges NumPy arrays between ranks, one after another. All ranks call the same methods.

    Args:
      name: of the exchanges.
      who: the layer, in messages.
    """

    def __init__(self, name: str, who: str) -> None:
        self._name = name
        self._who = who
        self._in_graph = not tf.executing_eagerly()
        if self._in_graph:
            self._words = tf.compat.v1.placeholder(tf.int64, [None])
            self._splits = tf.compat.v1.placeholder(tf.int32, [communicator().size])
            self._received = communicator().exchange(self._words, self._splits, name)

    def run(self, words: np.ndarray, splits: Sequence[int], session: Any) -> list[np.ndarray]:
        """Sends int64 words; returns those of each rank."""
        lengths = np.array(splits, np.int32)
        if self._in_graph:
            fed = {self._words: words, self._splits: lengths}
            received, counts = session.run(self._received, fed)
        else:
            received, counts = (
                part.numpy() for part in communicator().exchange(tf.constant(words), lengths, self._name)
            )
        return np.split(received, np.cumsum(counts)[:-1])

    def together(
        self, method: str, act: Callable[[], _T], session: Any, same: dict[str, int] | None = None
    ) -> _T:
        """Returns `act()`, once it has succeeded on all ranks.

        Args:
          method: the method of the layer, in messages.
          act: what this rank does; it must not exchange anything.
          session: to exchange in.
          same: arguments of the method that must be the same on all ranks.

        Raises:
          Exception: the error of `act`. If it fails on other ranks only, a ValueError that names the first
            of them and has its error's text.
          ValueError: ranks have other arguments.
        """
        try:
            result = act()
        except Exception as error:  # of any kind: the other ranks wait to be told
            self._tell(error, {}, session)
            raise
        of_ranks = self._tell(None, same or {}, session)
        for rank, (text, _) in enumerate(of_ranks):
            if text:
                raise ValueError(f"{self._who}: {method} failed on rank {rank}: {text}")
        for rank, (_, arguments) in enumerate(of_ranks):
            if arguments != of_ranks[0][1]:
                raise ValueError(
                    f"{self._who}: {method} has other arguments on rank {rank} than on rank 0: "
                    f"{_named(same, arguments)}, not {_named(same, of_ranks[0][1])}"
                )
        return result

    def _tell(
        self, error: Exception | None, same: dict[str, int], session: Any
    ) -> list[tuple[str, list[int]]]:
        """(text of its error, its arguments) of each rank; the text is empty if it has no error."""
        size = communicator().size
        if size == 1:
            return []
        text = b"" if error is None else f"{type(error).__name__}: {error}".encode()[:_ERROR_BYTES]
        arguments = [min(int(value), _LARGEST) for value in same.values()]
        numbers = np.array([len(text), *arguments], np.int64)
        words = np.frombuffer(numbers.tobytes() + text.ljust(-(-len(text) // 8) * 8), np.int64)
        received = self.run(np.tile(words, size), [len(words)] * size, session)
        return [_parsed(of_rank, len(same)) for of_rank in received]


def _parsed(words: np.ndarray, arguments: int) -> tuple[str, list[int]]:
    length = int(words[0])
    if length:  # a rank with an error sends no arguments
        return words[1:].tobytes()[:length].decode(errors="replace"), []
    return "", words[1 : 1 + arguments].tolist()


def _named(same: dict[str, int] | None, values: Sequence[int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(same or {}, values))
