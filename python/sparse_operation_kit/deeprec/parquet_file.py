"""Reads Parquet files with pyarrow, which is imported when the first file is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.deeprec.data_frame import Field

# DeepRec's variable for the number of threads that decode columns: 0 for none, negative for all.
_THREADS = "ARROW_NUM_THREADS"
# Arrow's types that have another name in TensorFlow.
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}


def fields_of(
    path: str, fields: Iterable[Field | str] | None = None, lower: bool = False
) -> tuple[Field, ...]:
    """Returns complete fields for columns of a file.

    Args:
      path: the file.
      fields: names of columns, or fields; None for all columns.
      lower: whether a name that is not in the file is looked up in lower case.

    Raises:
      ValueError: a column is not in the file, has a type that tensors do not have, or is not what its field
        says.
      ImportError: pyarrow is not installed.
    """
    with _opened(path) as file:
        schema = file.schema_arrow
    wanted = [
        Field(field) if isinstance(field, str) else field
        for field in (schema.names if fields is None else fields)
    ]
    return tuple(_complete(path, schema, field, lower) for field in wanted)


def batches(
    path: str,
    fields: Sequence[Field],
    batch_size: int,
    partition: tuple[int, int] = (0, 1),
    drop_remainder: bool = False,
    filters: Any = None,
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields batches of a file: for each field its values, followed by its row splits, outermost first.

    Args:
      path: the file.
      fields: complete fields.
      batch_size: rows of a batch; the last batch may have fewer.
      partition: (index, count): only row groups index, index + count, ... are read.
      drop_remainder: whether a last batch with fewer rows is left out.
      filters: rows that are read: a pyarrow expression, or lists of (column, operator, value) as
        `pyarrow.parquet.read_table` takes them.

    Raises:
      ValueError: the file cannot be read, is not what the fields say, or has a null where tensors cannot.
    """
    import pyarrow

    names = [field.name for field in fields]
    try:
        with _opened(path) as file:
            for field in fields:
                _complete(path, file.schema_arrow, field, lower=False)
            groups = list(range(partition[0], file.num_row_groups, partition[1]))
            pieces = _pieces(file, names, groups, batch_size, filters)
            for table in _of_size(pieces, batch_size, drop_remainder):
                yield tuple(array for field in fields for array in _arrays(path, table, field))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"ParquetDataset cannot read {path}: {error}") from error


def check_filters(filters: Any) -> None:
    """Raises ValueError if `filters` are not what `batches` takes."""
    if filters is not None:
        _expression(filters)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    parquet = _import_parquet()
    if "://" in path:
        from pyarrow import fs

        system, inner = fs.FileSystem.from_uri(path)
        with system.open_input_file(inner) as source:
            yield parquet.ParquetFile(source)
    else:
        with open(path, "rb") as source:
            yield parquet.ParquetFile(source)


def _import_parquet() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "ParquetDataset needs the package pyarrow, which is not installed: pip install pyarrow"
        ) from None
    threads = int(os.environ.get(_THREADS) or -1)
    if threads > 0:
        pyarrow.set_cpu_count(threads)
    return pyarrow.parquet


def _expression(filters: Any) -> Any:
    import pyarrow.dataset

    parquet = _import_parquet()
    if isinstance(filters, pyarrow.dataset.Expression):
        return filters
    try:
        return parquet.filters_to_expression(filters)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"ParquetDataset: filters must be [(column, operator, value), ...], not {filters!r}"
        ) from error


def _pieces(file: Any, names: list[str], groups: list[int], batch_size: int, filters: Any) -> Iterator[Any]:
    """Yields tables of some rows each, in the order of the file."""
    import pyarrow

    threads = os.environ.get(_THREADS) != "0"
    if filters is None:
        columns = names
    else:  # which may be about other columns, too
        expression, columns = _expression(filters), None
    for piece in file.iter_batches(batch_size, row_groups=groups, columns=columns, use_threads=threads):
        table = pyarrow.Table.from_batches([piece])
        yield table if filters is None else table.filter(expression).select(names)


def _of_size(pieces: Iterable[Any], size: int, drop_remainder: bool) -> Iterator[Any]:
    """Yields tables of `size` rows each, and one of the rest."""
    import pyarrow

    waiting: list[Any] = []
    rows = 0
    for piece in pieces:
        waiting.append(piece)
        rows += piece.num_rows
        if rows < size:
            continue
        table = pyarrow.concat_tables(waiting)
        for start in range(0, rows - size + 1, size):
            yield table.slice(start, size)
        waiting = [table.slice(rows - rows % size)]
        rows %= size
    if rows and not drop_remainder:
        yield pyarrow.concat_tables(waiting)


def _complete(path: str, schema: Any, field: Field, lower: bool) -> Field:
    """Completes a field with what the file's schema says, and checks what the field says already."""
    name = field.name
    if lower and name not in schema.names:
        name = name.lower()
    if schema.names.count(name) != 1:
        raise ValueError(f"{path} has {schema.names.count(name)} columns {name!r}; it has {schema.names}")
    dtype, ragged_rank, shape = _described(path, name, schema.field(name).type)
    if field.shape is not None and shape is None and ragged_rank == 1:
        ragged_rank, shape = field.ragged_rank or 0, field.shape
    elif shape is not None and field.ragged_rank == 1:
        ragged_rank = 1  # a list of the same length in every row is a list
        shape = field.shape
    for what, said, found in [
        ("dtype", field.dtype, dtype),
        ("ragged_rank", field.ragged_rank, ragged_rank),
        ("shape", _sizes(field.shape), _sizes(shape)),
    ]:
        if said is not None and said != found:
            shown = found.name if isinstance(found, tf.DType) else found
            given = said.name if isinstance(said, tf.DType) else said
            raise ValueError(f"Field {name!r}: {what} is {given}, but in {path} it is {shown}")
    return Field(name, dtype, ragged_rank, shape)


def _sizes(shape: tf.TensorShape | None) -> list[int] | None:
    return None if shape is None else shape.as_list()


def _described(path: str, name: str, kind: Any) -> tuple[tf.DType, int, tf.TensorShape | None]:
    """The dtype, ragged rank and shape of an arrow type."""
    from pyarrow import types

    if types.is_fixed_size_list(kind):
        dtype, ragged_rank, shape = _described(path, name, kind.value_type)
        if ragged_rank == 0 and shape is None:
            return dtype, 0, tf.TensorShape([kind.list_size])
        raise ValueError(f"{path}: column {name!r} has lists in lists of fixed size, {kind}")
    if types.is_list(kind) or types.is_large_list(kind):
        dtype, ragged_rank, shape = _described(path, name, kind.value_type)
        if shape is None:
            return dtype, ragged_rank + 1, None
        raise ValueError(f"{path}: column {name!r} has lists of fixed size in lists, {kind}")
    if types.is_dictionary(kind):
        return _described(path, name, kind.value_type)
    if types.is_boolean(kind):
        return tf.bool, 0, None
    if types.is_integer(kind) or types.is_floating(kind):
        return tf.dtypes.as_dtype(_FLOATS.get(str(kind), str(kind))), 0, None
    if _is_text(kind):
        return tf.string, 0, None
    raise ValueError(
        f"{path}: column {name!r} is of the type {kind}, which tensors do not have; name the other columns "
        "in `fields`"
    )


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    is_kind = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return types.is_fixed_size_binary(kind) or any(check(kind) for check in is_kind)


def _arrays(path: str, table: Any, field: Field) -> list[np.ndarray]:
    """The values of a column, and its row splits."""
    from pyarrow import types

    column = table.column(field.name).combine_chunks()
    if not hasattr(column, "offset"):  # older versions keep chunks, of which there is one, or none
        column = column.chunk(0)
    splits = []
    while types.is_list(column.type) or types.is_large_list(column.type):
        splits.append(_splits(column))
        column = column.flatten()
    if types.is_fixed_size_list(column.type):
        _check_no_null(path, field, column)
        splits.append(np.arange(len(column) + 1, dtype=np.int32) * np.int32(column.type.list_size))
        column = column.flatten()
    values = _values(path, field, column)
    if field.shape is not None:
        values = _shaped(path, field, values, splits[0])
    return [values, *splits[: field.ragged_rank]]


def _splits(lists: Any) -> np.ndarray:
    """Where each list begins in the values of all, and the end. Null is an empty list."""
    from pyarrow import compute

    lengths = compute.fill_null(compute.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    splits = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=splits[1:])
    return splits


def _values(path: str, field: Field, column: Any) -> np.ndarray:
    from pyarrow import binary, types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # A null among floats is what pandas writes for NaN.
    if not types.is_floating(column.type):
        _check_no_null(path, field, column)
    if _is_text(column.type):
        if not types.is_large_string(column.type) and not types.is_large_binary(column.type):
            column = column.cast(binary())
        values = column.to_numpy(zero_copy_only=False)
        return np.array([value.encode() if isinstance(value, str) else value for value in values], object)
    return column.to_numpy(zero_copy_only=False)


def _check_no_null(path: str, field: Field, column: Any) -> None:
    if column.null_count:
        raise ValueError(
            f"{path}: column {field.name!r} has a null, which a tensor cannot have; fill nulls before writing"
        )


def _shaped(path: str, field: Field, values: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """The values with the shape of the field in each row."""
    shape = field.shape
    assert shape is not None
    lengths = np.diff(splits)
    wrong = lengths[lengths != shape.num_elements()]
    if wrong.size:
        raise ValueError(
            f"{path}: column {field.name!r} has a list of {wrong[0]} values, which do not have the shape "
            f"{shape}"
        )
    return values.reshape([-1, *shape.as_list()])
