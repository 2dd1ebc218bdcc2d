"""DeepRec's dataset of batches from Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.tensors import types_of_generator
from sparse_operation_kit.deeprec import parquet_file
from sparse_operation_kit.deeprec.data_frame import Field, Value

# The class of version 2 in every TensorFlow. With v1 behavior, `tf.data.Dataset` is a subclass of it.
_Dataset: Any = tf.compat.v2.data.Dataset


class ParquetDataset(tf.compat.v2.data.Dataset):
    """A `tf.data.Dataset` of batches from Parquet files.

    An element is a dictionary with an entry for each field: a tensor `[batch]` or `[batch, ...shape]`, or a
    `DataFrame.Value` of columns of lists. A batch has rows of one file, in the order of the file, so that the
    last batch of each file may be smaller. A null list is an empty one, a null among floats is NaN, as pandas
    writes it, and another null is an error.

    Needs the package pyarrow.
    """

    @classmethod
    def read_schema(
        cls, filename: str, fields: Iterable[Field | str] | None = None, lower: bool = False
    ) -> tuple[Field, ...]:
        """Returns complete fields for columns of a file, those of `fields` (names or fields) or all.

        With `lower`, a name that is not in the file is looked up in lower case.
        """
        return parquet_file.fields_of(filename, fields, lower)

    def __init__(
        self,
        filenames: Any,
        batch_size: int = 1,
        fields: Iterable[Field | str] | None = None,
        partition_count: int = 1,
        partition_index: int = 0,
        drop_remainder: bool = False,
        num_parallel_reads: int | None = None,
        num_sequential_reads: int = 1,
        filters: Any = None,
    ) -> None:
        """Makes the dataset.

        Args:
          filenames: a file or a list of files, local or as URIs (`hdfs://`, `s3://`); or a tensor or dataset
            of such names.
          batch_size: rows of a batch.
          fields: names of columns, or fields. None for all columns of the first file. If the names of the
            files are in a tensor or dataset, fields with dtype and ragged rank, unless the dataset is that of
            a `WorkQueue`.
          partition_count: the number of partitions among which the row groups of each file are distributed.
          partition_index: which partition is read.
          drop_remainder: whether only batches of `batch_size` rows are kept.
          num_parallel_reads: how many files are read in turn, each in a thread of its own;
            `tf.data.experimental.AUTOTUNE` lets TensorFlow choose; None for one file after the other. The
            order of batches does not depend on the threads.
          num_sequential_reads: how many batches are taken from a file before the next file's turn.
          filters: rows that are read: `[(column, operator, value), ...]`, all of which must hold, or a list
            of such lists, one of which must hold, or a pyarrow expression. Not in DeepRec.

        Raises:
          ValueError: an argument is out of range, or a file does not have the fields.
          TypeError: `filenames` is of another type.
          OSError: the first file cannot be read.
          ImportError: pyarrow is not installed.
        """
        if batch_size < 1:
            raise ValueError(f"ParquetDataset: batch_size must be at least 1, but is {batch_size}")
        if not 0 <= partition_index < partition_count:
            raise ValueError(
                f"ParquetDataset: partition_index must be at least 0 and less than partition_count, but they "
                f"are {partition_index} and {partition_count}"
            )
        autotune = tf.data.experimental.AUTOTUNE
        if num_parallel_reads is not None and num_parallel_reads != autotune and num_parallel_reads < 1:
            raise ValueError(
                "ParquetDataset: num_parallel_reads must be at least 1, AUTOTUNE or None, but is "
                f"{num_parallel_reads}"
            )
        if num_sequential_reads < 1:
            raise ValueError(
                f"ParquetDataset: num_sequential_reads must be at least 1, but is {num_sequential_reads}"
            )
        parquet_file.check_filters(filters)
        self.partition_count = partition_count
        self.partition_index = partition_index
        self.drop_remainder = drop_remainder
        files, self.fields = _files_and_fields(filenames, fields)

        def read(name: bytes) -> Iterator[tuple]:
            partition = (partition_index, partition_count)
            path = name.decode()
            return parquet_file.batches(path, self.fields, batch_size, partition, drop_remainder, filters)

        rows = batch_size if drop_remainder else None
        self._batches = _interleaved(
            files, _reader(self.fields, read, rows), num_parallel_reads, num_sequential_reads
        )
        super().__init__(self._batches._variant_tensor)

    def _inputs(self) -> list[Any]:
        return [self._batches]

    @property
    def element_spec(self) -> Any:
        """The structure of an element."""
        return self._batches.element_spec


def read_parquet(
    batch_size: int,
    fields: Iterable[Field] | None = None,
    partition_count: int = 1,
    partition_index: int = 0,
    drop_remainder: bool = False,
    num_parallel_reads: int | None = None,
    num_sequential_reads: int = 1,
    filters: Any = None,
) -> Callable[[Any], ParquetDataset]:
    """Returns a transformation for `tf.data.Dataset.apply` that reads the files of a dataset of names.

    The arguments are those of `ParquetDataset`.
    """

    def apply(filenames: Any) -> ParquetDataset:
        return ParquetDataset(
            filenames,
            batch_size,
            fields,
            partition_count,
            partition_index,
            drop_remainder,
            num_parallel_reads,
            num_sequential_reads,
            filters,
        )

    return apply


def _files_and_fields(filenames: Any, fields: Iterable[Field | str] | None) -> tuple[Any, tuple[Field, ...]]:
    """The dataset of names of files, and the complete fields."""
    if isinstance(filenames, (str, bytes)):
        filenames = [filenames]
    if isinstance(filenames, (list, tuple)):
        names = [tf.compat.as_str(name) for name in filenames]
        if not names:
            raise ValueError("ParquetDataset: filenames is empty")
        return _Dataset.from_tensor_slices(names), parquet_file.fields_of(names[0], fields)
    if isinstance(filenames, tf.Tensor):
        filenames = _Dataset.from_tensor_slices(tf.reshape(filenames, [-1]))
    elif not isinstance(filenames, _Dataset):
        raise TypeError(
            "ParquetDataset: filenames must be a name, a list, a tensor or a dataset of names, not "
            f"{filenames!r}"
        )
    dtype = tf.compat.v1.data.get_output_types(filenames)
    if dtype != tf.string:
        raise TypeError(f"ParquetDataset: filenames must be strings, but they are {dtype}")
    given = tuple(fields or ())
    known = tuple(field for field in given if isinstance(field, Field) and not field.incomplete)
    if not known or known != given:
        first = getattr(filenames, "first_work", None)
        if first is not None:
            return filenames, parquet_file.fields_of(first, fields)
        raise ValueError(
            "ParquetDataset: the names of the files are known only when they are read, so fields must be "
            f"DataFrame.Field(name, dtype, ragged_rank) each, but they are {fields!r}"
        )
    return filenames, known


def _reader(
    fields: tuple[Field, ...], read: Callable[[bytes], Iterator[tuple]], rows: int | None
) -> Callable[[tf.Tensor], Any]:
    """A function from a file's name to the dataset of its batches."""
    dtypes: list[tf.DType] = []
    shapes: list[tf.TensorShape] = []
    for field in fields:
        assert field.dtype is not None and field.ragged_rank is not None
        is_list = field.ragged_rank > 0 and field.shape is None
        of_row = [] if field.shape is None else field.shape.as_list()
        dtypes += [field.dtype] + [tf.int32] * field.ragged_rank
        shapes.append(tf.TensorShape([None if is_list else rows, *of_row]))
        for depth in range(field.ragged_rank):
            shapes.append(tf.TensorShape([rows + 1 if rows is not None and depth == 0 else None]))

    @tf.autograph.experimental.do_not_convert
    def pack(*arrays: tf.Tensor) -> dict[str, Any]:
        left = list(arrays)
        columns: dict[str, Any] = {}
        for field in fields:
            count = 1 + (field.ragged_rank or 0)
            own, left = left[:count], left[count:]
            columns[field.name] = own[0] if count == 1 else Value(own[0], own[1:])
        return columns

    types = types_of_generator(dtypes, shapes)

    @tf.autograph.experimental.do_not_convert
    def create(name: tf.Tensor) -> Any:
        return _Dataset.from_generator(read, args=(name,), **types).map(pack)

    return create


def _interleaved(
    files: Any, create: Callable[[tf.Tensor], Any], num_parallel_reads: int | None, num_sequential_reads: int
) -> Any:
    if num_parallel_reads is None:
        return files.flat_map(create)
    if num_parallel_reads == tf.data.experimental.AUTOTUNE:
        return files.interleave(
            create, block_length=num_sequential_reads, num_parallel_calls=num_parallel_reads
        )
    return files.interleave(
        create,
        cycle_length=num_parallel_reads,
        block_length=num_sequential_reads,
        num_parallel_calls=num_parallel_reads,
    )
