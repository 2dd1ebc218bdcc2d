"""The weights of a layer as whole tables: read from all ranks and written on all ranks, in chunks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, Union

import numpy as np
import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.keras import keras_session
from sparse_operation_kit.dist_model_parallel.placement import Piece, check_count
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy
from sparse_operation_kit.dist_model_parallel.weight_files import TableFile, mapped
from sparse_operation_kit.ranks.communicator import communicator

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


_T = TypeVar("_T")


class _Variable:
    """Reads and writes rows of a variable. In a graph, creates its ops first: it may be finalized later."""

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


class _TableInMemory:
    """A whole table that is filled from its first row to its last; has the methods of a `TableFile`."""

    def __init__(self, rows: int, columns: int) -> None:
        self._table = np.empty([rows, columns], np.float32)
        self._filled = 0

    def space(self, rows: int) -> np.ndarray:
        self._filled += rows
        return self._table[self._filled - rows : self._filled]

    def add(self, rows: np.ndarray) -> None:
        pass

    def finish(self) -> np.ndarray:
        return self._table

    def discard(self) -> None:
        pass


_Target = Union[_TableInMemory, TableFile]


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
        self._exchange = ArrayExchange(f"{who}: weights", who)
        layout = strategy.layout
        self._of_piece: dict[Piece, _Variable] = {}
        own = [*zip(layout.replicas, replicas), *zip(layout.groups[communicator().rank], variables)]
        for group, variable in own:
            accessed = _Variable(variable)
            for piece in group.pieces:
                rank = piece.rank if group.replicated is None else communicator().rank
                self._of_piece[dataclasses.replace(piece, rank=rank)] = accessed

    def get(self, all_ranks: bool, session: Any, paths: Sequence[Any] | None, chunk: int) -> list[np.ndarray]:
        """The tables; see `DistributedEmbedding.get_weights`. Every rank calls it."""
        receives = all_ranks or communicator().rank == 0
        session = _session(session)
        same = {"all_ranks": int(all_ranks), "has_paths": int(paths is not None), "chunk": chunk}
        with contextlib.ExitStack() as stack:
            make = functools.partial(self._targets, paths, chunk, receives, stack)
            targets = self._together("get", make, session, same)
            for number in range(len(self._strategy.tables)):
                for arrived in self._chunks_of(number, all_ranks, chunk, session):
                    target = targets[number] if receives else None
                    fill = functools.partial(_fill, target, *arrived)
                    if paths is None:
                        fill()
                    else:
                        self._together("get", fill, session)
            return self._together("get", lambda: [target.finish() for target in targets], session)

    def _targets(
        self, paths: Sequence[Any] | None, chunk: int, receives: bool, stack: contextlib.ExitStack
    ) -> list[_Target]:
        """What the rows of each table are added to; none if this rank does not receive them."""
        check_count(chunk, "chunk")
        names = None if paths is None else self._checked_paths(paths)
        targets: list[_Target] = []
        for number, of_layer in enumerate(self._strategy.tables if receives else ()):
            rows, columns = of_layer.table.rows, of_layer.table.columns
            if names is None:
                targets.append(_TableInMemory(rows, columns))
            else:
                targets.append(TableFile(names[number], rows, columns, self._who_has(number)))
            stack.callback(targets[-1].discard)
        return targets

    def _chunks_of(
        self, number: int, all_ranks: bool, chunk: int, session: Any
    ) -> Iterator[tuple[int, int, Sequence[Piece], dict[int, np.ndarray]]]:
        """The table's rows [begin, end) of each chunk, its pieces, and the floats of each rank's pieces."""
        ranks, table = communicator(), self._strategy.tables[number].table
        pieces = [piece for piece in self._strategy.placement.pieces if piece.table == number]
        is_here = ranks.size == 1
        if number in self._strategy.placement.replicated:
            pieces, is_here = [piece for piece in pieces if piece.rank == ranks.rank], True
        if all_ranks and not is_here:
            chunk = max(1, chunk // ranks.size)  # a rank sends a copy to each
        for begin, end in _chunks(table.rows, table.columns, chunk):
            own = [piece for piece in pieces if piece.rank == ranks.rank]
            copies = 0 if is_here else ranks.size if all_ranks else 1
            # A rank may lack the memory for a chunk. The others must not wait for it.
            read = functools.partial(self._read, own, begin, end, copies, session)
            floats = self._together("get", read, session)
            if is_here:
                yield begin, end, pieces, {ranks.rank: floats}
            else:
                yield begin, end, pieces, dict(enumerate(self._sent(floats, copies, session)))

    def _read(self, pieces: Sequence[Piece], begin: int, end: int, copies: int, session: Any) -> np.ndarray:
        """The floats of the pieces' rows within [begin, end); to send, as words and once for each copy."""
        parts = []
        for piece in pieces:
            first, last = _overlap(piece, begin, end)
            shift = piece.offset - piece.rows[0]
            parts.append(self._of_piece[piece].read(first + shift, last + shift, session).reshape(-1))
        if not copies:
            return parts[0]
        floats = np.concatenate([*parts, np.zeros(1, np.float32)])  # the last float may be padding
        words = floats[: len(floats) // 2 * 2].view(np.int64)
        return np.tile(words, copies) if copies > 1 else words

    def _sent(self, words: np.ndarray, copies: int, session: Any) -> list[np.ndarray]:
        """Sends a copy of this rank's words to each of the first ranks; returns the floats of each rank."""
        splits = [len(words) // copies] * copies + [0] * (communicator().size - copies)
        return [part.view(np.float32) for part in self._exchange.run(words, splits, session)]

    def set(self, weights: Sequence[Any], chunk: int, use_lock: bool, session: Any) -> None:
        """Sets the tables; see `DistributedEmbedding.set_weights`. Every rank calls it."""
        ranks = communicator()
        session = _session(session)
        same = {"use_lock": int(bool(use_lock))}
        arrays = self._together("set", lambda: self._arrays(weights, chunk), session, same)
        for turn in range(ranks.size if use_lock else 1):
            writes = not use_lock or turn == ranks.rank
            write = functools.partial(self._write, arrays if writes else [], chunk, session)
            self._together("set", write, session)

    def _write(self, arrays: Sequence[Any], chunk: int, session: Any) -> None:
        for piece, variable in self._of_piece.items() if arrays else ():
            for begin, end in _chunks(
                piece.rows[1] - piece.rows[0], piece.columns[1] - piece.columns[0], chunk
            ):
                first = piece.rows[0] + begin
                rows = arrays[piece.table][first : first + end - begin, piece.columns[0] : piece.columns[1]]
                variable.write(piece.offset + begin, np.ascontiguousarray(rows, np.float32), session)

    def _together(
        self, method: str, act: Callable[[], _T], session: Any, same: dict[str, int] | None = None
    ) -> _T:
        return self._exchange.together(f"{method}_weights", act, session, same)

    def _checked_paths(self, paths: Any) -> list[str]:
        tables = self._strategy.tables
        if not isinstance(paths, (list, tuple)):
            raise TypeError(f"{self._who}: paths must be a list of paths, not {type(paths).__name__}")
        if len(paths) != len(tables):
            raise ValueError(f"{self._who} has {len(tables)} tables, but there are {len(paths)} paths")
        names: list[str] = []
        for number, path in enumerate(paths):
            name = os.fspath(path) if isinstance(path, os.PathLike) else path
            if not isinstance(name, str):
                raise TypeError(f"{self._who_has(number)}: the path must be a str, not {name!r}")
            if os.path.abspath(name) in map(os.path.abspath, names):
                raise ValueError(f"{self._who_has(number)}: another table has the path {name!r}, too")
            names.append(name)
        return names

    def _who_has(self, number: int) -> str:
        return f"{self._who}: weights of {self._strategy.describe(number)}"

    def _arrays(self, weights: Any, chunk: Any) -> list[Any]:
        check_count(chunk, "chunk")
        tables = self._strategy.tables
        if not isinstance(weights, (list, tuple)):
            raise TypeError(
                f"{self._who}: weights must be a list of arrays or paths, not {type(weights).__name__}"
            )
        if len(weights) != len(tables):
            raise ValueError(f"{self._who} has {len(tables)} tables, but there are {len(weights)} weights")
        arrays = []
        for number, (weight, of_layer) in enumerate(zip(weights, tables)):
            who = self._who_has(number)
            if isinstance(weight, (str, os.PathLike)):
                weight = mapped(weight, who)
            elif not isinstance(weight, np.ndarray):
                weight = np.asarray(weight)
            shape = (of_layer.table.rows, of_layer.table.columns)
            if weight.shape != shape:
                raise ValueError(f"{who} have the shape {weight.shape}, not {shape}")
            if weight.dtype.kind not in "fiu":
                raise TypeError(f"{who} are {weight.dtype}, not numbers")
            arrays.append(weight)
        return arrays


def _overlap(piece: Piece, begin: int, end: int) -> tuple[int, int]:
    first = max(begin, piece.rows[0])
    return first, max(first, min(end, piece.rows[1]))


def _fill(
    target: _Target | None, begin: int, end: int, pieces: Sequence[Piece], floats: dict[int, np.ndarray]
) -> None:
    """Adds the rows [begin, end) to the target, if there is one, from the floats of each rank's piece."""
    if target is None:
        return
    rows = target.space(end - begin)
    for piece in pieces:
        first, last = _overlap(piece, begin, end)
        width = piece.columns[1] - piece.columns[0]
        own = floats[piece.rank][: (last - first) * width]
        rows[first - begin : last - begin, slice(*piece.columns)] = own.reshape(-1, width)
    target.add(rows)


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
