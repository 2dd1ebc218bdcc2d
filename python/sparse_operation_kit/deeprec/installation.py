"""Adds DeepRec's names to TensorFlow's namespaces, and removes them."""

from __future__ import annotations

import types
from typing import Any

from sparse_operation_kit import feature_columns
from sparse_operation_kit.core import (
    deeprec_arithmetic,
    embedding_variable,
    get_embedding_variable,
    graph_keys,
    replacements,
    row_policies,
    storage_option,
)
from sparse_operation_kit.core.replacement_table import Part
from sparse_operation_kit.deeprec import (
    absent_names,  # noqa: F401 - registers entries
    adaptive,
    adaptive_column,
    collective,
    column_arguments,  # noqa: F401 - registers entries
    config_fields,  # noqa: F401 - registers entries
    data_frame,
    dynamic_dimension,
    incremental_arguments,  # noqa: F401 - registers entries
    kept_weights,  # noqa: F401 - registers entries
    lookup_arguments,  # noqa: F401 - registers entries
    multihash,
    multihash_column,
    parquet_dataset,
    sequence_column,
    staging,
    work_queue,
)
from sparse_operation_kit.lookup import embedding_lookup, multi_dim, safe_lookups
from sparse_operation_kit.optimizers import AdagradDecayOptimizer, AdamAsyncOptimizer, AdamWOptimizer
from sparse_operation_kit.saver.incremental_saver import IncrementalSaver, incremental_saver_of

# The module from which programs import CollectiveStrategy.
STRATEGY_MODULE = "tensorflow.python.distribute.group_embedding_collective_strategy"
# The modules from which programs import ParquetDataset, staged, WorkQueue, DataFrame.
PARQUET_MODULE = "tensorflow.python.data.experimental.ops.parquet_dataset_ops"
STAGING_MODULE = "tensorflow.python.ops.prefetch"
WORK_QUEUE_MODULE = "tensorflow.python.ops.work_queue"
DATA_FRAME_MODULE = "tensorflow.python.data.experimental.ops.dataframe"
# The modules of IncrementalSaver, and of the enumerations of storage.
SAVER_MODULE = "tensorflow.python.training.incremental_saver"
EMBEDDING_MODULE = "tensorflow.core.framework.embedding"
# The module of the classes of tables.
TABLES_MODULE = "tensorflow.python.ops.kv_variable_ops"


def install() -> None:
    """Adds DeepRec's names to `tf` and `tf.compat.v1` in the whole process. May be called repeatedly.

    Names that TensorFlow has already stay, but some functions also take DeepRec's arguments. Not thread-safe,
    like building graphs.
    """
    replacements.install(Part.DEEPREC_NAMES)


def uninstall() -> None:
    """Removes the names that `install` has added.

    It also undoes `enable_distributed_strategy` and `use_deeprec_arithmetic`.
    """
    collective.disable_distributed_strategy()
    deeprec_arithmetic.forget_choice()
    replacements.uninstall(Part.DEEPREC_NAMES)


def is_installed() -> bool:
    """Returns whether DeepRec's names are installed."""
    return replacements.is_installed(Part.DEEPREC_NAMES)


def _module(name: str, doc: str | None, **contents: Any) -> types.ModuleType:
    module = types.ModuleType(name, doc)
    vars(module).update(contents)
    return module


for _name, _value in {
    "CBFFilter": row_policies.CBFFilter,
    "CacheStrategy": storage_option.CacheStrategy,
    "CounterFilter": row_policies.CounterFilter,
    "EmbeddingVariableOption": get_embedding_variable.EmbeddingVariableOption,
    "GlobalStepEvict": row_policies.GlobalStepEvict,
    "InitializerOption": row_policies.InitializerOption,
    "L2WeightEvict": row_policies.L2WeightEvict,
    "StorageOption": storage_option.StorageOption,
    "StorageType": storage_option.StorageType,
    "get_embedding_variable": get_embedding_variable.get_embedding_variable,
    "get_dynamic_dimension_embedding_variable": dynamic_dimension.get_dynamic_dimension_embedding_variable,
    "get_multihash_variable": multihash.get_multihash_variable,
    "data.experimental.DataFrame": data_frame.DataFrame,
    "data.experimental.ParquetDataset": parquet_dataset.ParquetDataset,
    "make_prefetch_hook": staging.make_prefetch_hook,
    "staged": staging.staged,
    "train.mark_target_node": staging.mark_target_node,
    "config.experimental.enable_distributed_strategy": collective.enable_distributed_strategy,
    "config.experimental.enable_group_embedding": collective.enable_group_embedding,
    "feature_column.categorical_column_with_adaptive_embedding": (
        adaptive_column.categorical_column_with_adaptive_embedding
    ),
    "feature_column.categorical_column_with_multihash": multihash_column.categorical_column_with_multihash,
    "feature_column.sequence_categorical_column_with_embedding": (
        sequence_column.sequence_categorical_column_with_embedding
    ),
    "nn.adaptive_embedding_lookup_sparse": adaptive.adaptive_embedding_lookup_sparse,
    "feature_column.categorical_column_with_embedding": feature_columns.categorical_column_with_embedding,
    "feature_column.group_embedding_column_scope": feature_columns.group_embedding_column_scope,
    "nn.embedding_lookup_sparse_multi_dim": multi_dim.embedding_lookup_sparse_multi_dim,
    "nn.fused_embedding_lookup_sparse": safe_lookups.fused_embedding_lookup_sparse,
    "nn.fused_safe_embedding_lookup_sparse": safe_lookups.fused_safe_embedding_lookup_sparse,
    "nn.group_embedding_lookup": embedding_lookup.group_embedding_lookup,
    "nn.group_embedding_lookup_sparse": embedding_lookup.group_embedding_lookup_sparse,
    "nn.safe_embedding_lookup_multi_dim": multi_dim.safe_embedding_lookup_multi_dim,
    "train.AdagradDecayOptimizer": AdagradDecayOptimizer,
    # In DeepRec these two differ in the shape of a slot of ordinary variables, not in what they compute.
    "train.AdagradDecayOptimizerV2": AdagradDecayOptimizer,
    "train.AdamAsyncOptimizer": AdamAsyncOptimizer,
    "train.AdamWOptimizer": AdamWOptimizer,
    "train.IncrementalSaver": IncrementalSaver,
}.items():
    replacements.implements(f"tf.{_name}")(_value)
for _name in ("EMBEDDING_VARIABLES", "EV_INIT_SLOT_OPS", "EV_INIT_VAR_OPS"):
    replacements.implements(f"tf.compat.v1.GraphKeys.{_name}")(getattr(graph_keys, _name))
_CONFIGS = _module(
    f"{EMBEDDING_MODULE}.config_pb2",
    None,
    StorageType=storage_option.StorageType,
    CacheStrategy=storage_option.CacheStrategy,
)
for _module_of_names in (
    _module(STRATEGY_MODULE, collective.__doc__, CollectiveStrategy=collective.CollectiveStrategy),
    _module(
        PARQUET_MODULE,
        parquet_dataset.__doc__,
        DataFrame=data_frame.DataFrame,
        ParquetDataset=parquet_dataset.ParquetDataset,
        read_parquet=parquet_dataset.read_parquet,
    ),
    _module(
        STAGING_MODULE,
        staging.__doc__,
        make_prefetch_hook=staging.make_prefetch_hook,
        staged=staging.staged,
    ),
    _module(
        TABLES_MODULE,
        None,
        EmbeddingVariable=embedding_variable.EmbeddingVariable,
        MultiHashVariable=multihash.MultiHashVariable,
        DynamicEmbeddingVariable=dynamic_dimension.DynamicDimensionVariable,
    ),
    _module(WORK_QUEUE_MODULE, work_queue.__doc__, WorkQueue=work_queue.WorkQueue),
    _module(
        DATA_FRAME_MODULE,
        data_frame.__doc__,
        DataFrame=data_frame.DataFrame,
        to_sparse=data_frame.to_sparse,
        unbatch_and_to_sparse=data_frame.unbatch_and_to_sparse,
    ),
    _module(
        SAVER_MODULE,
        None,
        IncrementalSaver=IncrementalSaver,
        _get_incremental_saver=incremental_saver_of,
    ),
    _CONFIGS,
    _module(EMBEDDING_MODULE, None, config_pb2=_CONFIGS),
):
    replacements.implements(_module_of_names.__name__)(_module_of_names)
