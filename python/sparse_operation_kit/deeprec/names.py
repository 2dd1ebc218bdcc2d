"""DeepRec's public names on embedding: those that `installation` adds to TensorFlow, and the absent ones.

Absent names have errors that say what to use instead. The tables under "Every name" in docs/from-deeprec.md
say how each name differs from DeepRec's, and have the names that TensorFlow has anyway.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import re
import types
from typing import Any

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.deeprec.replacement_entries import (
    LATE_OWNERS_OF_ABSENT_NAMES,
    OWNERS_OF_ABSENT_NAMES,
    Part,
)

_DATA = "tensorflow.python.data.experimental.ops"
_EMBEDDING = "tensorflow.core.framework.embedding.config_pb2"
_OPS = "tensorflow.python.ops"
_SAVER = "tensorflow.python.training.incremental_saver"

# In the order of the tables.
ADDED = (
    "tf.get_embedding_variable",
    "tf.EmbeddingVariableOption",
    "tf.InitializerOption",
    "tf.CounterFilter",
    "tf.CBFFilter",
    "tf.GlobalStepEvict",
    "tf.L2WeightEvict",
    "tf.get_dynamic_dimension_embedding_variable",
    "tf.get_multihash_variable",
    "tf.StorageOption",
    "tf.StorageType",
    "tf.CacheStrategy",
    f"{_EMBEDDING}.StorageType",
    f"{_EMBEDDING}.CacheStrategy",
    "tf.GraphKeys.EMBEDDING_VARIABLES",
    "tf.GraphKeys.EV_INIT_VAR_OPS",
    "tf.GraphKeys.EV_INIT_SLOT_OPS",
    f"{_OPS}.kv_variable_ops.EmbeddingVariable",
    f"{_OPS}.kv_variable_ops.MultiHashVariable",
    f"{_OPS}.kv_variable_ops.DynamicEmbeddingVariable",
    "tf.nn.group_embedding_lookup_sparse",
    "tf.nn.group_embedding_lookup",
    "tf.nn.fused_embedding_lookup_sparse",
    "tf.nn.fused_safe_embedding_lookup_sparse",
    "tf.nn.embedding_lookup_sparse_multi_dim",
    "tf.nn.safe_embedding_lookup_multi_dim",
    "tf.nn.adaptive_embedding_lookup_sparse",
    "tf.feature_column.categorical_column_with_adaptive_embedding",
    "tf.feature_column.categorical_column_with_multihash",
    "tf.feature_column.sequence_categorical_column_with_embedding",
    "tf.feature_column.group_embedding_column_scope",
    "tf.feature_column.categorical_column_with_embedding",
    "tf.config.experimental.enable_distributed_strategy",
    "tf.config.experimental.enable_group_embedding",
    "tensorflow.python.distribute.group_embedding_collective_strategy.CollectiveStrategy",
    "tf.train.AdagradDecayOptimizer",
    "tf.train.AdagradDecayOptimizerV2",
    "tf.train.AdamAsyncOptimizer",
    "tf.train.AdamWOptimizer",
    "tf.staged",
    "tf.make_prefetch_hook",
    "tf.train.mark_target_node",
    f"{_OPS}.prefetch.staged",
    f"{_OPS}.prefetch.make_prefetch_hook",
    f"{_OPS}.work_queue.WorkQueue",
    "tf.variable_scope.keep_weights",
    "tf.data.experimental.ParquetDataset",
    "tf.data.experimental.DataFrame",
    f"{_DATA}.parquet_dataset_ops.DataFrame",
    f"{_DATA}.parquet_dataset_ops.ParquetDataset",
    f"{_DATA}.parquet_dataset_ops.read_parquet",
    f"{_DATA}.dataframe.DataFrame",
    f"{_DATA}.dataframe.to_sparse",
    f"{_DATA}.dataframe.unbatch_and_to_sparse",
    "tf.train.IncrementalSaver",
    f"{_SAVER}.IncrementalSaver",
    f"{_SAVER}._get_incremental_saver",
)

_COLUMNS = "use tf.feature_column.categorical_column_with_embedding and tf.feature_column.embedding_column"
_KAFKA = "the package tensorflow-io reads from Kafka"

# What to use instead.
ABSENT = {
    "tensorflow.python.ops.hash_table": (
        "tf.get_embedding_variable makes tables, and tf.CounterFilter and tf.CBFFilter admit keys"
    ),
    "tf.CheckpointOption": ("sok.init_from_checkpoint loads rows from a checkpoint, assign_rows from arrays"),
    "tf.contrib.feature_column.sparse_column_with_embedding": _COLUMNS,
    "tf.contrib.layers.sparse_column_with_embedding": _COLUMNS,
    "tf.contrib": (
        "TensorFlow 2 has no tf.contrib: use tf.feature_column, tf.nn and tf.layers. TensorFlow 1.15 has it, "
        "without DeepRec's additions"
    ),
    "tensorflow.python.distribute.launch": ("mpirun -np N or horovodrun -np N starts the ranks"),
    "tf.prefetch_join": (
        "read several sources with tf.data.Dataset.interleave, and pass its batches to tf.staged"
    ),
    "tf.stream": "TensorFlow chooses a GPU's streams: leave the scope out",
    "tf.graph_optimizer": (
        "instead of enable_sample_awared_graph_compression, compute once per user what depends only on the "
        "user, and repeat the result with tf.repeat"
    ),
    "tf.data.KafkaDataset": _KAFKA,
    "tf.data.KafkaGroupIODataset": _KAFKA,
    "tf.TableRecordReader": (
        "export the table to Parquet files, and read them with tf.data.experimental.ParquetDataset"
    ),
}
# By full name.
ERRORS = {name: f"{name} of DeepRec is absent here: {instead}" for name, instead in ABSENT.items()}
_ERRORS_BY_LAST_PART = {name.rpartition(".")[2]: error for name, error in ERRORS.items()}
# The full names of the modules from which programs import names of `tf`.
_TENSORFLOW = re.compile(r"tensorflow(\._api\.v\d+)?(\.compat\.v1)?\.")
_THIS_PACKAGE = "sparse_operation_kit.deeprec."


def error_in_this_package(name: str) -> str | None:
    """Returns the error for a name of DeepRec that `sparse_operation_kit.deeprec` lacks; None for others."""
    return _ERRORS_BY_LAST_PART.get(name)


def _error_of_module(name: str) -> str | None:
    """Returns the error for importing the module, or for importing a name from a module."""
    if name in ERRORS:
        return ERRORS[name]
    if name.startswith(_THIS_PACKAGE):
        return error_in_this_package(name[len(_THIS_PACKAGE) :])
    below = _TENSORFLOW.match(name)
    return ERRORS.get(f"tf.{name[below.end() :]}") if below else None


class _Finder(importlib.abc.MetaPathFinder):
    """Finds no module. For a name of DeepRec, it raises the error."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Returns None, or raises ModuleNotFoundError."""
        error = _error_of_module(fullname)
        if error is not None:
            # Not with `name=`: `from tensorflow import NAME` would hide the error behind one of its own.
            raise ModuleNotFoundError(error)


class _LateModules(importlib.abc.MetaPathFinder):
    """Finds the modules of tf.contrib that have errors, and installs these once a module is imported."""

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns what Python's own finder of files does for these modules, None for others."""
        if fullname not in LATE_OWNERS_OF_ABSENT_NAMES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            replacements.reach_new_modules(Part.NAMES)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _error_in_namespace(namespace: str, name: str) -> str | None:
    return ERRORS.get(f"{namespace}.{name}")


for _owner in OWNERS_OF_ABSENT_NAMES:
    replacements.implements(f"{_owner}.__getattr__")(functools.partial(_error_in_namespace, _owner))
for _owner in LATE_OWNERS_OF_ABSENT_NAMES:
    _public = _owner.partition(".python.")[0].replace("tensorflow.", "tf.", 1)
    replacements.implements(f"{_owner}.__getattr__")(functools.partial(_error_in_namespace, _public))
replacements.implements("sys.meta_path")((_LateModules(), _Finder()))
