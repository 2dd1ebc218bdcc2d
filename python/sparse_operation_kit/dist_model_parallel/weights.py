"""The weights of a layer as whole tables: read from all ranks and written on all ranks, in chunks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.dist_model_parallel.keras import keras_session
from sparse_operation_kit.dist_model_parallel.placement import Piece
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy


class _Variable:
    """Reads and writes rows of a variable. In a graph, makes its ops at once, so that it may be finalized."""

    def __init__(self, variable: tf.Variable) -> None:
        self._variable = variable
        self._in_graph = not tf.executing_eagerly()
        if self._in_graph:
            place = tf.compat.v1.placeholder
            self._begin, self._end = place(tf.int64, []), place(tf.int64, [])
            self._rows = place(tf.float32, [None, variable.shape[1]])
            self._read = self._read_op(self._begin, self._end)
            self._write = self._write_op(self._begin, self._rows)

    def read(self, begin: int, end: int, session: Any) -> np.ndarray:
        if not self._in_graph:
            return self._read_op(begin, end).numpy()
        return session.run(self._read, {self._begin: begin, self._end: end})

    def write(self, begin: int, rows: np.ndarray, session: Any) -> None:
        if not self._in_graph:
            self._write_op(begin, rows)
        else:
            session.run(self._write, {self._begin: begin, self._rows: rows})

    def _read_op(self, begin: Any, end: Any) -> tf.Tensor:
        return tf.gather(self._variable, tf.range(begin, end, dtype=tf.int64))

    def _write_op(self, begin: Any, rows: Any) -> tf.Operation:
        indices = begin + tf.range(tf.shape(rows, out_type=tf.int64)[0])
        handle = self._variable.handle
        return tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=indices, updates=rows)


class _Exchange:
    """Exchanges NumPy arrays between ranks, one after another."""

    def __init__(self, name: str) -> None:
        self._name = name
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


class Weights:
    """Reads and writes the tables of a layer.

    Args:
      strategy: the tables.
      replicas: the variables of replicated tables.
      variables: this rank's other variables.
      who: the layer, in messages.
    """

    def __init__(
        self,
        strategy: DistEmbeddingStrategy,
        replicas: Sequence[tf.Variable],
        variables: Sequence[tf.Variable],
        who: str,
    ) -> None:
        self._strategy = strategy
        self._who = who
        self._exchange = _Exchange(f"{who}: weights")
        layout = strategy.layout
        self._of_piece: dict[Piece, _Variable] = {}
        own = [*zip(layout.replicas, replicas), *zip(layout.groups[communicator().rank], variables)]
        for group, variable in own:
            accessed = _Variable(variable)
            for piece in group.pieces:
                rank = piece.rank if group.replicated is None else communicator().rank
                self._of_piece[_on(piece, rank)] = accessed

    def get(self, all_ranks: bool, chunk: int, session: Any) -> list[np.ndarray]:
        """The tables; see `DistributedEmbedding.get_weights`. Every rank calls it."""
        ranks = communicator()
        receives = all_ranks or ranks.rank == 0
        session = _session(session)
        results = []
        for number, of_layer in enumerate(self._strategy.tables):
            table = of_layer.table
            result = np.empty([table.rows, table.columns] if receives else [0, 0], np.float32)
            pieces = [piece for piece in self._strategy.placement.pieces if piece.table == number]
            is_here = ranks.size == 1
            if number in self._strategy.placement.replicated:
                pieces, is_here = [piece for piece in pieces if piece.rank == ranks.rank], True
            for begin, end in _chunks(table.rows, table.columns, chunk):
                own = [self._read(piece, begin, end, session) for piece in pieces if piece.rank == ranks.rank]
                of_ranks = [own[0]] if is_here else self._sent(own, all_ranks, session)
                if receives:
                    senders = [ranks.rank] if is_here else range(ranks.size)
                    _place(result, pieces, dict(zip(senders, of_ranks)), begin, end)
            results.append(result)
        return results if receives else []

    def _read(self, piece: Piece, begin: int, end: int, session: Any) -> np.ndarray:
        begin, end = _overlap(piece, begin, end)
        shift = piece.offset - piece.rows[0]
        return self._of_piece[piece].read(begin + shift, end + shift, session).reshape(-1)

    def _sent(self, own: Sequence[np.ndarray], all_ranks: bool, session: Any) -> list[np.ndarray]:
        """Sends this rank's floats to all ranks or to rank 0; returns those of each rank."""
        size = communicator().size
        floats = np.concatenate([*own, np.zeros(1, np.float32)])  # the last is a filler of odd lengths
        words = floats[: len(floats) // 2 * 2].view(np.int64)
        if all_ranks:
            received = self._exchange.run(np.tile(words, size), [len(words)] * size, session)
        else:
            received = self._exchange.run(words, [len(words)] + [0] * (size - 1), session)
        return [part.view(np.float32) for part in received]

    def set(self, weights: Sequence[Any], chunk: int, use_lock: bool, session: Any) -> None:
        """Sets the tables; see `DistributedEmbedding.set_weights`. Every rank calls it."""
        ranks = communicator()
        session = _session(session)
        error: Exception | None = None
        arrays: list[Any] = []
        try:
            arrays = self._arrays(weights)
            _check_chunk(chunk)
        except Exception as caught:  # of any kind: the other ranks wait to be told
            error = caught
        self._agree(error, session)
        for turn in range(ranks.size if use_lock else 1):
            if turn == ranks.rank or not use_lock:
                self._write(arrays, chunk, session)
            if use_lock:
                self._agree(None, session)

    def _write(self, arrays: Sequence[Any], chunk: int, session: Any) -> None:
        for piece, variable in self._of_piece.items():
            for begin, end in _chunks(
                piece.rows[1] - piece.rows[0], piece.columns[1] - piece.columns[0], chunk
            ):
                first = piece.rows[0] + begin
                rows = arrays[piece.table][first : first + end - begin, piece.columns[0] : piece.columns[1]]
                variable.write(piece.offset + begin, np.ascontiguousarray(rows, np.float32), session)

    def _agree(self, error: Exception | None, session: Any) -> None:
        """Raises on all ranks if there is an error on one: there, that error."""
        size = communicator().size
        failed = []
        if size > 1:
            told = self._exchange.run(np.full(size, error is not None, np.int64), [1] * size, session)
            failed = [rank for rank, words in enumerate(told) if words[0]]
        if error is not None:
            raise error
        if failed:
            raise ValueError(f"{self._who}: set_weights failed on rank {failed[0]}; its error has the reason")

    def _arrays(self, weights: Any) -> list[Any]:
        tables = self._strategy.tables
        if not isinstance(weights, (list, tuple)):
            raise TypeError(
                f"{self._who}: weights must be a list of arrays or paths, not {type(weights).__name__}"
            )
        if len(weights) != len(tables):
            raise ValueError(f"{self._who} has {len(tables)} tables, but there are {len(weights)} weights")
        arrays = []
        for number, (weight, of_layer) in enumerate(zip(weights, tables)):
            who = f"{self._who}: weights of {self._strategy.describe(number)}"
            if isinstance(weight, (str, os.PathLike)):
                weight = _loaded(weight, who)
            elif not isinstance(weight, np.ndarray):
                weight = np.asarray(weight)
            shape = (of_layer.table.rows, of_layer.table.columns)
            if weight.shape != shape:
                raise ValueError(f"{who} have the shape {weight.shape}, not {shape}")
            if weight.dtype.kind not in "fiu":
                raise TypeError(f"{who} are {weight.dtype}, not numbers")
            arrays.append(weight)
        return arrays


def _loaded(path: Any, who: str) -> np.ndarray:
    try:
        loaded = np.load(path, mmap_mode="r")
    except (EOFError, ValueError) as error:
        raise ValueError(f"{who}: {os.fspath(path)} is no .npy file: {error}") from error
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise ValueError(f"{who}: {os.fspath(path)} is no .npy file, but an archive of several")
    return loaded


def _on(piece: Piece, rank: int) -> Piece:
    return dataclasses.replace(piece, rank=rank)


def _overlap(piece: Piece, begin: int, end: int) -> tuple[int, int]:
    first = max(begin, piece.rows[0])
    return first, max(first, min(end, piece.rows[1]))


def _place(
    result: np.ndarray, pieces: Sequence[Piece], of_ranks: dict[int, np.ndarray], begin: int, end: int
) -> None:
    """Writes the floats of each rank's piece to their rows and columns."""
    for piece in pieces:
        first, last = _overlap(piece, begin, end)
        columns = slice(*piece.columns)
        width = piece.columns[1] - piece.columns[0]
        floats = of_ranks[piece.rank][: (last - first) * width]
        result[first:last, columns] = floats.reshape(-1, width)


def _check_chunk(chunk: Any) -> None:
    if isinstance(chunk, bool) or not hasattr(chunk, "__index__") or chunk < 1:
        raise ValueError(f"chunk must be an integer of at least 1, not {chunk!r}")


def _chunks(rows: int, columns: int, chunk: int) -> Iterator[tuple[int, int]]:
    """[begin, end) of rows with at most `chunk` elements, or of one row."""
    step = max(1, chunk // columns)
    for begin in range(0, rows, step):
        yield begin, min(rows, begin + step)


def _session(session: Any) -> Any:
    """The session to use in a graph: the one given, else the default one, else Keras'. None if eager."""
    if tf.executing_eagerly():
        return None
    if session is None:
        return tf.compat.v1.get_default_session() or keras_session()
    # A monitored session would run its hooks.
    return session._tf_sess() if hasattr(session, "_tf_sess") else session
