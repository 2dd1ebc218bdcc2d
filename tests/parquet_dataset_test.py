# Tags: versions
# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""ParquetDataset: batches, lists, partitions, filters, names in datasets, files of pyarrow and pandas."""

import functools
import pathlib
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

import harness
from sparse_operation_kit import deeprec
from sparse_operation_kit.deeprec import DataFrame, ParquetDataset, read_parquet
from sparse_operation_kit.deeprec.data_frame import to_sparse, unbatch_and_to_sparse

# Written by pandas 3.1.1, `to_parquet(row_group_size=3)`: int64, float32 with NaN, strings, categories, lists
# with None, bool, an index.
PANDAS_FILE = pathlib.Path(__file__).with_name("pandas_file.parquet")
PANDAS_ROWS = {
    "key": [5, -1, 2**40, 7],
    "price": [0.5, np.nan, 2.0, 3.25],
    "name": [b"ann", b"", "Zo\u00eb".encode(), b"bob"],
    "kind": [b"x", b"y", b"x", b"x"],
    "seen": [[1, 2], [], [3], []],
    "flag": [True, False, True, True],
    "__index_level_0__": [10, 20, 30, 40],
}


def read(make_dataset):
    """All elements of the dataset that `make_dataset` returns, with lists for the columns of lists."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(make_dataset())
        batch = iterator.get_next()
        session.run(iterator.initializer)
        batches = []
        while True:
            try:
                batches.append(session.run(batch))
            except tf.errors.OutOfRangeError:
                return batches


def rows(batches, name):
    """The rows of a column in all batches, as Python values."""
    found = []
    for batch in batches:
        column = batch[name]
        if isinstance(column, DataFrame.Value):
            column = nested(column.values, column.nested_row_splits)
        found += [value.tolist() if isinstance(value, np.ndarray) else value for value in column]
    return found


def nested(values, splits):
    """The lists of lists that values and row splits stand for."""
    values = list(values)
    for level in reversed(splits):
        assert level.dtype == np.int32
        values = [values[start:end] for start, end in zip(level[:-1], level[1:])]
    return values


def plain(value):
    """A row as pyarrow gives it, with bytes for text and empty lists for None."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.encode() if isinstance(value, str) else value


def write(path, columns, **options):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
    return str(path)


@pytest.fixture
def numbers(tmp_path):
    """A file with the rows 0 to 24 in row groups of 7."""
    return write(tmp_path / "numbers.parquet", {"i": np.arange(25)}, row_group_size=7)


def test_a_file_of_pandas():
    batches = read(lambda: ParquetDataset(str(PANDAS_FILE), batch_size=3))
    assert [len(batch["key"]) for batch in batches] == [3, 1]
    assert set(batches[0]) == set(PANDAS_ROWS)
    for name, wanted in PANDAS_ROWS.items():
        np.testing.assert_equal(rows(batches, name), wanted)


@pytest.mark.parametrize(
    ("kind", "dtype", "values"),
    [
        *((name, name, [0, 1, 100]) for name in ("int8", "int16", "int32", "int64")),
        *((name, name, [0, 1, 200]) for name in ("uint8", "uint16", "uint32", "uint64")),
        ("int64", "int64", [2**63 - 1, -(2**63), -1]),
        ("float32", "float32", [0.1, -np.inf, None]),
        ("float64", "float64", [0.1, 1e300, np.nan]),
        ("bool_", "bool", [True, False, True]),
        ("string", "string", ["a", "", "\u00e9\u4e2d"]),
        ("large_string", "string", ["a", "", "b"]),
        ("binary", "string", [b"\x00\xff", b"", b"b"]),
    ],
)
def test_types(tmp_path, kind, dtype, values):
    column = pyarrow.array(values, getattr(pyarrow, kind)())
    path = write(tmp_path / "one.parquet", {"column": column})
    with tf.Graph().as_default():
        dataset = ParquetDataset(path, 2)
        assert dataset.element_spec["column"].dtype == dtype
        assert isinstance(dataset, tf.compat.v2.data.Dataset)
    batches = read(lambda: ParquetDataset(path, 2))
    wanted = [np.nan if value is None else plain(value) for value in column.to_pylist()]
    np.testing.assert_equal(rows(batches, "column"), wanted)
    assert batches[0]["column"].dtype == (object if dtype == "string" else dtype)


def test_random_files_hold_what_pyarrow_reads(tmp_path):
    rng = np.random.default_rng(3)

    def bag(depth):
        if depth == 0:
            return int(rng.integers(-(2**62), 2**62))
        return [bag(depth - 1) for _ in range(rng.integers(0, 4))]

    for trial in range(6):
        count = int(rng.integers(1, 60))
        columns = {
            "key": rng.integers(0, 9, count),
            "text": [str(value) * (value % 3) for value in rng.integers(0, 99, count)],
            **{f"bags{depth}": [bag(depth) for _ in range(count)] for depth in (1, 2, 3)},
        }
        types = {f"bags{depth}": pyarrow.int64() for depth in (1, 2, 3)}
        for depth in (1, 2, 3):
            for _ in range(depth):
                types[f"bags{depth}"] = pyarrow.list_(types[f"bags{depth}"])
        arrays = {name: pyarrow.array(column, types.get(name)) for name, column in columns.items()}
        path = write(tmp_path / f"{trial}.parquet", arrays, row_group_size=int(rng.integers(1, 20)))
        size = int(rng.integers(1, 25))
        batches = read(functools.partial(ParquetDataset, path, size))
        lengths = [len(batch["key"]) for batch in batches]
        assert lengths == [size] * (count // size) + ([count % size] if count % size else [])
        for name, column in arrays.items():
            assert rows(batches, name) == plain(column.to_pylist())


def test_a_file_without_rows(tmp_path):
    path = write(tmp_path / "empty.parquet", {"bag": pyarrow.array([], pyarrow.list_(pyarrow.int32()))})
    assert read(lambda: ParquetDataset(path, 4)) == []


def test_lists_of_one_length_have_a_shape(tmp_path):
    flat = pyarrow.array(np.arange(12, dtype=np.float32))
    path = write(
        tmp_path / "shapes.parquet",
        {
            "fixed": pyarrow.FixedSizeListArray.from_arrays(flat, 4),
            "list": pyarrow.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]),
        },
    )
    inferred = ParquetDataset.read_schema(path)
    assert [(field.ragged_rank, field.shape) for field in inferred] == [(0, [4]), (1, None)]
    fields = ["fixed", DataFrame.Field("list", tf.int64, shape=[2, 2])]
    (batch,) = read(lambda: ParquetDataset(path, 3, fields))
    np.testing.assert_array_equal(batch["fixed"], np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(batch["list"], np.arange(1, 13).reshape(3, 2, 2))
    lists = [DataFrame.Field("fixed", ragged_rank=1)]
    assert rows(read(lambda: ParquetDataset(path, 2, lists)), "fixed") == np.arange(12).reshape(3, 4).tolist()
    both = [DataFrame.Field("list", tf.int64, ragged_rank=1, shape=[4])]
    (batch,) = read(lambda: ParquetDataset(path, 3, both).apply(to_sparse()))
    assert batch["list"].shape == (3, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'list' has a list of 4 values"):
        read(lambda: ParquetDataset(path, 3, [DataFrame.Field("list", tf.int64, shape=[3])]))


def test_batches_hold_rows_of_one_file(numbers):
    dataset = lambda **options: ParquetDataset([numbers, numbers], 10, **options)  # noqa: E731
    assert [len(batch["i"]) for batch in read(dataset)] == [10, 10, 5] * 2
    kept = read(lambda: dataset(drop_remainder=True))
    assert [batch["i"].tolist() for batch in kept] == [list(range(10)), list(range(10, 20))] * 2
    with tf.Graph().as_default():
        assert dataset(drop_remainder=True).element_spec["i"].shape == [10]
        assert dataset().element_spec["i"].shape.as_list() == [None]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_partitions_share_the_row_groups(numbers, count):
    parts = [
        rows(read(lambda index=index: ParquetDataset(numbers, 4, None, count, index)), "i")
        for index in range(count)
    ]
    for index, part in enumerate(parts):
        groups = [np.arange(25)[start : start + 7] for start in range(7 * index, 25, 7 * count)]
        assert part == np.concatenate([[], *groups]).tolist()


@pytest.mark.parametrize(
    "filters",
    [
        [("key", ">", 3)],
        [("key", "in", [1, 2]), ("text", "!=", "1")],
        [[("key", "==", 1)], [("text", "==", "4")]],
        [("key", "<", 0)],
    ],
)
def test_filters_keep_what_pyarrow_keeps(tmp_path, filters):
    keys = np.random.default_rng(1).integers(0, 6, 40)
    columns = {"key": keys, "text": [str(key) for key in keys], "row": np.arange(40)}
    path = write(tmp_path / "filtered.parquet", columns, row_group_size=9)
    wanted = pyarrow.parquet.read_table(path, filters=filters)["row"].to_pylist()
    batches = read(lambda: ParquetDataset(path, 4, ["row"], filters=filters))
    assert rows(batches, "row") == wanted
    assert all(len(batch["row"]) == 4 for batch in batches[:-1])
    expression = pyarrow.parquet.filters_to_expression(filters)
    assert rows(read(lambda: ParquetDataset(path, 4, ["row"], filters=expression)), "row") == wanted


def test_datasets_and_tensors_of_names(numbers):
    fields = [DataFrame.Field("i", tf.int64, 0)]

    def of_dataset(**options):
        names = tf.compat.v1.data.Dataset.from_tensor_slices([numbers, numbers])
        return names.apply(read_parquet(10, fields=fields, **options))

    one_by_one = rows(read(of_dataset), "i")
    assert one_by_one == [*range(25)] * 2
    assert rows(read(lambda: ParquetDataset(tf.constant(numbers), 10, fields)), "i") == [*range(25)]
    assert rows(read(lambda: ParquetDataset(tf.constant([numbers] * 2), 10, fields)), "i") == one_by_one
    in_turn = read(lambda: of_dataset(num_parallel_reads=2))
    assert [batch["i"][0] for batch in in_turn] == [0, 0, 10, 10, 20, 20]
    two_at_a_time = read(lambda: of_dataset(num_parallel_reads=2, num_sequential_reads=2))
    assert [batch["i"][0] for batch in two_at_a_time] == [0, 10, 0, 10, 20, 20]
    tuned = read(lambda: of_dataset(num_parallel_reads=tf.data.experimental.AUTOTUNE))
    assert sorted(rows(tuned, "i")) == sorted(one_by_one)
    tuned = read(lambda: of_dataset(num_parallel_reads=tf.data.experimental.AUTOTUNE, num_sequential_reads=3))
    assert rows(tuned, "i") == one_by_one
    for wrong in (None, ["i"], [DataFrame.Field("i", tf.int64)]):
        with tf.Graph().as_default(), pytest.raises(ValueError, match="DataFrame.Field"):
            ParquetDataset(tf.constant(numbers), 10, wrong)
    with tf.Graph().as_default(), pytest.raises(TypeError, match="must be strings"):
        ParquetDataset(tf.constant([1]), 10, fields)
    with pytest.raises(TypeError, match="not 3"):
        ParquetDataset(3)


def test_uris_and_pipelines_of_scripts(numbers):
    def pipeline():
        dataset = ParquetDataset(f"file://{numbers}", 10, ["i"]).shuffle(20000, seed=1).repeat(2)
        dataset = dataset.map(lambda batch: (batch, batch.pop("i")), num_parallel_calls=2)
        return dataset.prefetch(2)

    assert sorted(np.concatenate([label for _, label in read(pipeline)])) == sorted([*range(25)] * 2)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = ParquetDataset(numbers, 10)
        types = tf.compat.v1.data.get_output_types(dataset)
        iterator = tf.compat.v1.data.Iterator.from_structure(
            types, tf.compat.v1.data.get_output_shapes(dataset)
        )
        batch = iterator.get_next()
        for first in (0, 7):
            again = ParquetDataset(numbers, 10, partition_count=2, partition_index=first // 7)
            session.run(iterator.make_initializer(again))
            assert session.run(batch)["i"][0] == first
        one_shot = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        assert session.run(one_shot)["i"].tolist() == list(range(10))


def test_sparse_tensors(tmp_path):
    bags = [[1], [], [2, 3], [4, 5, 6]]
    deep = [[[1], []], [], [[2, 3]], [[], [], [4]]]
    path = write(tmp_path / "bags.parquet", {"i": [1, 2, 3, 4], "bag": bags, "deep": deep})
    (batch,) = read(lambda: ParquetDataset(path, 4).apply(to_sparse()))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, wanted in {"bag": bags, "deep": deep}.items():
            sparse = session.run(tf.ragged.constant(wanted, dtype=tf.int64).to_sparse())
            np.testing.assert_array_equal(batch[name].indices, sparse.indices)
            np.testing.assert_array_equal(batch[name].values, sparse.values)
            np.testing.assert_array_equal(batch[name].dense_shape, sparse.dense_shape)
    assert batch["i"].tolist() == [1, 2, 3, 4]
    single = read(lambda: ParquetDataset(path, 1).apply(unbatch_and_to_sparse()))
    assert [row["i"] for row in single] == [1, 2, 3, 4]
    assert [row["bag"].values.tolist() for row in single] == bags
    assert [row["bag"].dense_shape.tolist() for row in single] == [[1], [0], [2], [3]]
    assert single[3]["deep"].indices.tolist() == [[2, 0]]
    with pytest.raises(ValueError, match="not a value of a DataFrame"):
        DataFrame.to_sparse("text")
    with tf.Graph().as_default():
        ragged = tf.ragged.constant([[1], []])
        assert isinstance(DataFrame.to_sparse({"a": ragged})["a"], tf.SparseTensor)
        assert DataFrame.Value(tf.constant([1])).to_ragged().shape == [1]


def test_tables_train_on_lists(tmp_path):
    path = write(tmp_path / "train.parquet", {"bag": [[5, -1], [], [5], [7]], "label": [1.0, 0.0, 1.0, 0.0]})
    with harness.graph_and_session() as session:
        table = deeprec.get_embedding_variable("parquet/table", 4)
        iterator = tf.compat.v1.data.make_initializable_iterator(ParquetDataset(path, 2).repeat(10))
        batch = iterator.get_next()
        (pooled,) = deeprec.group_embedding_lookup_sparse([table], [batch["bag"].to_ragged()], ["sum"])
        labels = tf.cast(batch["label"], tf.float32)
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(pooled, axis=1) - labels))
        step = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        harness.initialize(session)
        session.run(iterator.initializer)
        losses = [session.run([loss, step])[0] for _ in range(20)]
        assert losses[-2] < losses[0] and session.run(table.size()) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, but is 0"),
        ({"partition_count": 2, "partition_index": 2}, "they are 2 and 2"),
        ({"partition_index": -1}, "they are -1 and 1"),
        ({"num_sequential_reads": 0}, "num_sequential_reads must be at least 1"),
        ({"num_parallel_reads": 0}, "num_parallel_reads must be at least 1, AUTOTUNE or None, but is 0"),
        ({"fields": ["j"]}, "has 0 columns 'j'; it has .'i'."),
        ({"fields": [DataFrame.Field("i", tf.int32)]}, "dtype is int32, but in .* it is int64"),
        ({"fields": [DataFrame.Field("i", ragged_rank=1)]}, "ragged_rank is 1, but in .* it is 0"),
        ({"fields": [DataFrame.Field("i", shape=[2])]}, "shape is .*2.*, but in .* it is None"),
        ({"filters": "i > 3"}, "filters must be"),
    ],
)
def test_arguments_that_are_wrong(numbers, options, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        ParquetDataset(numbers, **options)


def test_fields_that_are_wrong():
    with pytest.raises(ValueError, match="filenames is empty"):
        ParquetDataset([])
    with pytest.raises(ValueError, match="must not be negative"):
        DataFrame.Field("a", ragged_rank=-1)
    with pytest.raises(ValueError, match="all of the shape must be known"):
        DataFrame.Field("a", shape=[None, 2])
    with pytest.raises(ValueError, match="2 nested lists"):
        DataFrame.Field("a", ragged_rank=2, shape=[2])
    assert repr(DataFrame.Field("a", "int64", 1)) == "Field('a', int64, ragged_rank=1, shape=None)"


def test_columns_that_tensors_cannot_be(tmp_path):
    when = pyarrow.array([1, 2], pyarrow.timestamp("s"))
    columns = {"when": when, "i": [1, 2], "holes": [1, None], "no": ["a", None]}
    path = write(tmp_path / "when.parquet", columns)
    with pytest.raises(ValueError, match="'when' is of the type timestamp.*name the other columns"):
        ParquetDataset(path)
    assert rows(read(lambda: ParquetDataset(path, 1, ["i"])), "i") == [1, 2]
    for name in ("holes", "no"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"column '{name}' has a null"):
            read(lambda name=name: ParquetDataset(path, 2, [name]))
    assert [field.name for field in ParquetDataset.read_schema(path, ["I"], lower=True)] == ["i"]
    sizes = pyarrow.array([[[1, 2]], []], pyarrow.list_(pyarrow.list_(pyarrow.int64(), 2)))
    fixed = write(tmp_path / "fixed.parquet", {"sizes": sizes})
    with pytest.raises(ValueError, match="'sizes' has lists of fixed size in lists"):
        ParquetDataset(fixed)


def test_files_that_are_wrong(tmp_path, numbers):
    with pytest.raises(FileNotFoundError, match="absent.parquet"):
        ParquetDataset(str(tmp_path / "absent.parquet"))
    other = write(tmp_path / "other.parquet", {"i": ["a"]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="other.parquet it is string"):
        read(lambda: ParquetDataset([numbers, other], 25))
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(pathlib.Path(numbers).read_bytes()[:-9])
    for wrong in (str(damaged), str(tmp_path / "absent.parquet")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=pathlib.Path(wrong).name):
            read(lambda wrong=wrong: ParquetDataset([numbers, wrong], 25))


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch, numbers):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="ParquetDataset needs the package pyarrow.*pip install pyarrow"):
        ParquetDataset(numbers)


@pytest.mark.parametrize("threads", ["0", "1", "-1", "2"])
def test_threads_do_not_change_what_is_read(monkeypatch, numbers, threads):
    before = pyarrow.cpu_count()
    monkeypatch.setenv("ARROW_NUM_THREADS", threads)
    try:
        assert rows(read(lambda: ParquetDataset(numbers, 4)), "i") == [*range(25)]
        assert pyarrow.cpu_count() == (int(threads) if int(threads) > 0 else before)
    finally:
        pyarrow.set_cpu_count(before)
