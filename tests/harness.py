"""Helpers of most tests: one configuration of sok.Init per process, sessions in new graphs, keys, tables."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from same_length import zip_equal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import rewriter_config_pb2

import device_of_tests  # noqa: F401 - before the library
import sparse_operation_kit as sok
from sparse_operation_kit.ranks.communicator import communicator

GLOBAL_BATCH_SIZE = 48  # a multiple of 1, 2, 3 and 4 ranks
SEED = 1

# Keys that other libraries reserve, truncate or confuse.
HOSTILE_KEYS = np.array([0, -1, 1, 2**31, 2**32, 2**32 + 1, 2**63 - 1, -(2**63), -(2**31)], dtype=np.int64)


def session_config(intra_op_threads: int = 2) -> tf.compat.v1.ConfigProto:
    """The configuration of `graph_and_session`."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=intra_op_threads)
    # Without a pass that only sorts the graph and infers shapes, and with one round of Grappler instead of
    # several, which give the same graph. Both take a fifth of a small test's time. Tests that make their own
    # sessions have them.
    if hasattr(config.graph_options.rewrite_options, "disable_tfg_optimizer"):  # not in 1.15
        config.graph_options.rewrite_options.disable_tfg_optimizer = True
    config.graph_options.rewrite_options.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    return config


def without_optimizations(config: tf.compat.v1.ConfigProto | None = None) -> tf.compat.v1.ConfigProto:
    """Returns `config`, or a new one, so changed that a session runs graphs as they were built.

    TensorFlow's optimizations of a graph take longer than a few steps of it.
    """
    config = tf.compat.v1.ConfigProto() if config is None else config
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


@contextlib.contextmanager
def graph_and_session(intra_op_threads: int = 2) -> Iterator[tf.compat.v1.Session]:
    """A session in a new default graph, after sok.Init. Build the graph, then call `initialize`."""
    config = session_config(intra_op_threads)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        session.run(init())
        yield session


@pytest.fixture
def session() -> Iterator[tf.compat.v1.Session]:
    """`graph_and_session` for a whole test. A file of tests has it by `session = harness.session`."""
    with graph_and_session() as session:
        yield session


def assert_equal_arrays(arrays: Iterable[Any], others: Iterable[Any], err_msg: str = "") -> None:
    """Compares as many arrays with as many others, element by element."""
    for one, other in zip_equal(arrays, others):
        np.testing.assert_array_equal(one, other, err_msg=err_msg)


def assert_close_arrays(
    arrays: Iterable[Any], others: Iterable[Any], rtol: float = 1e-5, atol: float = 1e-6, err_msg: str = ""
) -> None:
    """Like `assert_equal_arrays`, within tolerances."""
    for one, other in zip_equal(arrays, others):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, err_msg=err_msg)


def assert_equal_dicts(found: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> None:
    """Compares keys, and the values as arrays, with their dtypes."""
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert np.asarray(found[key]).dtype == np.asarray(value).dtype, key
        np.testing.assert_array_equal(found[key], value, err_msg=str(key))


def reference() -> contextlib.AbstractContextManager:
    """Places TensorFlow's own ops whose bits a test expects: on a GPU, their kernels may round otherwise."""
    return tf.device("/CPU:0")


def init() -> tf.Tensor:
    """sok.Init as in `graph_and_session`."""
    return sok.Init(global_batch_size=GLOBAL_BATCH_SIZE, seed=SEED)


def init_and_initialize(session: tf.compat.v1.Session) -> None:
    """Runs sok.Init, and then the initializers of all variables in the graph."""
    session.run(init())
    initialize(session)


def initialize(session: tf.compat.v1.Session) -> None:
    """Runs the initializers of all variables in the graph."""
    session.run(tf.compat.v1.global_variables_initializer())


def zipf_keys(
    rng: np.random.Generator, count: int, vocabulary: int = 1000, exponent: float = 1.2
) -> np.ndarray:
    """`count` int64 keys with skewed frequencies, spread over the whole range of int64."""
    ranks = np.minimum(rng.zipf(exponent, count), vocabulary).astype(np.uint64)
    return (ranks * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)


class TableReader:
    """Reads tables repeatedly without adding ops to the graph."""

    def __init__(self, *variables: sok.EmbeddingVariable) -> None:
        self._contents = [_contents(variable) for variable in variables]

    def read(self, session: tf.compat.v1.Session) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each table, what `table_contents` returns."""
        return session.run(self._contents)


def _contents(variable: sok.EmbeddingVariable) -> tuple[tf.Tensor, tf.Tensor]:
    keys, rows = variable.keys_and_rows()
    of_all = communicator().allgather
    name = f"contents of {variable.m_var_name}"
    return of_all(tf.cast(keys, tf.int64), f"{name}: keys"), of_all(rows, f"{name}: rows")


def table_contents(
    session: tf.compat.v1.Session, variable: sok.EmbeddingVariable
) -> tuple[np.ndarray, np.ndarray]:
    """(keys, rows) of a table, int64 `[n]` and float32 `[n, dim]`, in the order of its row numbers.

    On several ranks, all of them call this, and each gets the rows of all ranks, rank by rank.
    """
    return contents_of_tables(session, [variable])[0]


def contents_of_tables(
    session: tf.compat.v1.Session, variables: Sequence[sok.EmbeddingVariable]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """As `table_contents`, of many tables in one run."""
    with session.graph.as_default() as graph:
        # Ops that read a table are built once: after new ops, TensorFlow prepares the next run anew. With the
        # variable, so that no other one gets its id.
        if not hasattr(graph, "contents_of_tables"):
            graph.contents_of_tables = {}
        built = graph.contents_of_tables
        for variable in variables:
            if id(variable) not in built:
                built[id(variable)] = variable, _contents(variable)
        return session.run([built[id(variable)][1] for variable in variables])


def saved_tables(prefix: str) -> dict[str, dict[str, np.ndarray]]:
    """By table, the arrays of a full checkpoint, with all shards joined and sorted by key.

    Reads with TensorFlow only, as any other program could.
    """
    reader = tf.train.load_checkpoint(prefix)
    names = sorted(reader.get_variable_to_shape_map())
    tables = {}
    for name in names:
        text = reader.get_tensor(name) if f"{name}#0" in names else None
        if not isinstance(text, bytes) or not text.startswith(b'{"format":"sparse-operation-kit table"'):
            continue
        entry = json.loads(text)
        assert entry["kind"] == "full", entry
        starts = [f"{name}#{shard}/" for shard in range(entry["shards"])]
        shards = [
            {one[len(start) :]: reader.get_tensor(one) for one in names if one.startswith(start)}
            for start in starts
        ]
        order = np.argsort(np.concatenate([shard["keys"] for shard in shards]))
        tables[name] = {
            array: np.concatenate([shard[array] for shard in shards])[order]
            for array in shards[0]
            if all(len(shard[array]) == len(shard["keys"]) for shard in shards)
        }
    return tables


def gradient_by_key(
    session: tf.compat.v1.Session,
    variable: sok.EmbeddingVariable,
    gradient: tf.IndexedSlices,
    keys: np.ndarray,
    feed: dict | None = None,
) -> np.ndarray:
    """Evaluates a table's gradient; returns its sum for each of `keys`, zeros for keys without gradients."""
    indices, values = session.run([gradient.indices, gradient.values], feed)
    key_of_row = table_contents(session, variable)[0]
    position = {int(key): i for i, key in enumerate(keys)}
    dense = np.zeros([len(keys), variable.dim], np.float64)
    for row, value in zip_equal(indices, values):
        dense[position[int(key_of_row[row])]] += value
    return dense


def dataset_of(batches: Callable[[], Iterable], signature: Any) -> tf.data.Dataset:
    """A dataset of what `batches()` iterates over; `signature` has a tf.TensorSpec for each tensor."""
    types = tf.nest.map_structure(lambda spec: spec.dtype, signature)
    shapes = tf.nest.map_structure(lambda spec: spec.shape, signature)
    # Version 1.15 does not take a signature.
    return tf.data.Dataset.from_generator(batches, output_types=types, output_shapes=shapes)


def served(folder: str, signature: str = "serving_default", **inputs: Any) -> dict[str, np.ndarray]:
    """The outputs of a SavedModel's signature, in a session of its own."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        served = v1.saved_model.load(session, ["serve"], folder).signature_def[signature]
        feed = {served.inputs[name].name: value for name, value in inputs.items()}
        return session.run({name: output.name for name, output in served.outputs.items()}, feed)


def empty_tensor(dtype: tf.DType) -> tf.Tensor:
    """A constant of shape [0] of any dtype, including those that tf.constant cannot make."""
    value = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    value.tensor_shape.dim.add(size=0)
    attributes = {
        "value": tf.compat.v1.AttrValue(tensor=value),
        "dtype": tf.compat.v1.AttrValue(type=dtype.as_datatype_enum),
    }
    return tf.compat.v1.get_default_graph().create_op("Const", [], [dtype], attrs=attributes).outputs[0]
