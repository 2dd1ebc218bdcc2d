"""What checkpoints have of tables, by their entries (docs/checkpoint-format.md); the command line; exports in
lookups."""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import forked
from sparse_operation_kit.checkpoint import Table, cli, open_checkpoint, reader, row_blocks
from sparse_operation_kit.checkpoint.rows import columns_of


def entry(prefix: str | os.PathLike, table: str | None = None) -> dict[str, Any]:
    """A table's own entry; of the only table without a name."""
    checkpoint = reader.open_saved(os.fspath(prefix))
    assert checkpoint is not None, prefix
    if table is None:
        (table,) = checkpoint.tables
    return json.loads(tf.train.load_checkpoint(os.fspath(prefix)).get_tensor(table))


def tensors_of(prefix: str | os.PathLike) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint, as TensorFlow reads them."""
    tensors = tf.train.load_checkpoint(os.fspath(prefix))
    return {name: np.asarray(tensors.get_tensor(name)) for name in tensors.get_variable_to_shape_map()}


def table_columns(prefix: str | os.PathLike, name: str | None = None) -> tuple[dict[str, np.ndarray], Table]:
    """The columns of a table and, as "keys", its keys, in their order; of the only table without a name."""
    (entry,) = open_checkpoint(prefix).select(name and [name])
    table = entry.open()
    names = columns_of(table)
    blocks = list(row_blocks(table, names))
    columns = {one: np.concatenate([block.columns[one] for block in blocks]) for one in names}
    columns["keys"] = np.concatenate([block.keys for block in blocks])
    order = np.argsort(columns["keys"])
    return {one: column[order] for one, column in columns.items()}, table


def chain(prefix: str | os.PathLike, table: str | None = None) -> list[str]:
    """The prefixes that a table builds on, without their directory."""
    return [os.path.basename(link["prefix"]) for link in entry(prefix, table)["chain"]]


def data_files(prefix: str | os.PathLike) -> list[pathlib.Path]:
    """A checkpoint's data files with rows of tables, one for each rank, sorted."""
    checkpoint = reader.open_saved(os.fspath(prefix))
    assert checkpoint is not None and checkpoint.tables, prefix
    shards = checkpoint.open_table(checkpoint.tables[0]).links[-1]["shards"]
    return [pathlib.Path(shard["arrays"]["keys"]["file"]) for shard in shards]


def place(prefix: str | os.PathLike, table: str, array: str, shard: int = 0) -> tuple[pathlib.Path, int, int]:
    """The data file of an array of a shard, its offset there, and its bytes."""
    checkpoint = reader.open_saved(os.fspath(prefix))
    assert checkpoint is not None, prefix
    found = checkpoint.open_table(table).links[-1]["shards"][shard]["arrays"][array]
    return pathlib.Path(found["file"]), found["offset"], found["stored_bytes"]


def bases(directory: str | os.PathLike) -> list[str]:
    """The prefixes, without the directory, that have a file of a checkpoint, complete or not; sorted."""
    file = re.compile(r"(.+?)\.(index|sok-index|meta|data-\d{5}-of-\d{5}|sok-[0-9a-f]{16}\..+)")
    matches = (file.fullmatch(name) for name in os.listdir(directory))
    return sorted({match.group(1) for match in matches if match})


def files(prefix: str | os.PathLike) -> dict[str, int]:
    """The names of all files at a prefix, with their inodes."""
    directory, base = os.path.split(os.fspath(prefix))
    return {one.name: one.inode() for one in os.scandir(directory) if one.name.startswith(f"{base}.")}


def counted_by(prefix: str | os.PathLike) -> str | None:
    """The kind of Saver whose `max_to_keep` counts the checkpoint."""
    checkpoint = reader.open_saved(os.fspath(prefix))
    assert checkpoint is not None and checkpoint.facts is not None, prefix
    return checkpoint.facts.counted_by


def run_command(capsys: pytest.CaptureFixture, *arguments: object) -> tuple[int, str, str]:
    """(status, standard output, standard error) of the command line."""
    try:
        status = cli.main([str(argument) for argument in arguments])
    except SystemExit as end:
        status = end.code
    return (status, *capsys.readouterr())


def refused(capsys: pytest.CaptureFixture, *arguments: object) -> str:
    """The error of a command that is to end with status 2."""
    status, _, error = run_command(capsys, *arguments)
    assert status == 2, (arguments, status)
    return error


# What happens to files of checkpoints, by name.
DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "another file": lambda path: path.write_bytes(b"something else" * 1000),
    "huge": lambda path: os.truncate(path, 1 << 40),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "a dangling link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


# Loads a SavedModel with TensorFlow 2's loader and with a session's, both twice in one process, and gives
# each signature those of the fed values that it takes. Runs without Horovod, and with or without this
# library, in a process that has imported neither.
_SERVE = """
import json, sys
folder, feeds, hidden = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
for name in hidden:
    assert name not in sys.modules
    sys.modules[name] = None
import numpy as np
import pytest
import tensorflow as tf
if "sparse_operation_kit" not in hidden:
    import sparse_operation_kit
found = {}
def empty(shape):
    return [size or 0 for size in shape.as_list()]
def note(name, outputs):
    outputs = {key: np.asarray(value).tolist() for key, value in outputs.items()}
    np.testing.assert_equal(outputs, found.setdefault(name, outputs))
for _ in range(2 if tf.executing_eagerly() else 0):
    model = tf.saved_model.load(folder)
    for name, function in model.signatures.items():
        keywords = function.structured_input_signature[1]
        given = {key: tf.constant(feeds[key], one.dtype, empty(one.shape) if not feeds[key] else None)
                 for key, one in keywords.items()}
        note(name, function(**given))
for _ in range(2):
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        for name, signature in meta.signature_def.items():
            if name.startswith("__"):
                continue
            given = {}
            for key, info in signature.inputs.items():
                sparse = info.coo_sparse
                tensors = {key: info.name} if info.name else {
                    key + "_indices": sparse.indices_tensor_name, key + "_values": sparse.values_tensor_name,
                    key + "_dense_shape": sparse.dense_shape_tensor_name}
                for part, tensor in tensors.items():
                    tensor = session.graph.get_tensor_by_name(tensor)
                    given[tensor] = np.reshape(np.array(feeds[part], tensor.dtype.as_numpy_dtype),
                                               np.shape(feeds[part]) if feeds[part] else empty(tensor.shape))
            names = {key: info.name for key, info in signature.outputs.items()}
            note(name, session.run(names, given))
print(json.dumps(found))
"""


def serve_model(
    folder: pathlib.Path, feeds: Mapping[str, Any], *hidden: str
) -> dict[str, dict[str, np.ndarray]]:
    """{signature: {output: float32}} from another process, in which the modules `hidden` cannot be imported.

    `feeds` are lists by the names of inputs; a sparse input `x` takes `x_indices`, `x_values` and
    `x_dense_shape`.
    """
    program = folder.with_suffix(".py")
    program.write_text(_SERVE)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    if "sparse_operation_kit" in hidden and environment.get("SOK_TEST_DEVICE") == "fake_gpu":
        # The fake GPU has few of the stock ops that such a model consists of.
        del environment["SOK_TEST_DEVICE"]
    result = forked.run(
        program,
        str(folder),
        json.dumps({name: np.asarray(values).tolist() for name, values in feeds.items()}),
        "horovod",
        *hidden,
        env=environment,
    )
    return {
        name: {key: np.array(value, np.float32) for key, value in outputs.items()}
        for name, outputs in json.loads(forked.succeeded(result)).items()
    }


def serve(folder: pathlib.Path, ids: Iterable[int], *hidden: str) -> dict[str, np.ndarray]:
    """{signature: rows} from another process, in which the modules `hidden` cannot be imported."""
    found = serve_model(folder, {"ids": [int(i) for i in ids]}, *hidden)
    return {name: outputs["rows"] for name, outputs in found.items()}
