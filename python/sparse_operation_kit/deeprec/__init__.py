"""DeepRec's API, for programs that were written for DeepRec.

Importing this module, or calling its `install`, adds DeepRec's names to `tf` and `tf.compat.v1`. A program
begins with::

    import tensorflow.compat.v1 as tf
    import sparse_operation_kit.deeprec

    tf.disable_eager_execution()

`uninstall` removes the names. `use_deeprec_arithmetic` chooses how tables are initialized and trained. This
module has the same functions and classes, for use without the names in `tf`.
"""

from typing import Any

from sparse_operation_kit.deeprec import installation
from sparse_operation_kit.deeprec.adaptive import (
    adaptive_embedding_lookup_sparse,
    categorical_column_with_adaptive_embedding,
)
from sparse_operation_kit.deeprec.collective import (
    CollectiveStrategy,
    enable_distributed_strategy,
    enable_group_embedding,
)
from sparse_operation_kit.deeprec.column_arguments import sequence_categorical_column_with_embedding
from sparse_operation_kit.deeprec.data_frame import DataFrame
from sparse_operation_kit.deeprec.dynamic_dimension import get_dynamic_dimension_embedding_variable
from sparse_operation_kit.deeprec.incremental_saver import IncrementalSaver
from sparse_operation_kit.deeprec.installation import install, is_installed, uninstall
from sparse_operation_kit.deeprec.lookups import (
    fused_embedding_lookup_sparse,
    fused_safe_embedding_lookup_sparse,
)
from sparse_operation_kit.deeprec.multi_dim import (
    embedding_lookup_sparse_multi_dim,
    safe_embedding_lookup_multi_dim,
)
from sparse_operation_kit.deeprec.multihash import categorical_column_with_multihash, get_multihash_variable
from sparse_operation_kit.deeprec.names import error_in_this_package
from sparse_operation_kit.deeprec.parquet_dataset import ParquetDataset, read_parquet
from sparse_operation_kit.deeprec.program_rules import use_deeprec_arithmetic, uses_deeprec_arithmetic
from sparse_operation_kit.deeprec.staging import make_prefetch_hook, mark_target_node, staged
from sparse_operation_kit.deeprec.work_queue import WorkQueue
from sparse_operation_kit.feature_columns import (
    categorical_column_with_embedding,
    group_embedding_column_scope,
)
from sparse_operation_kit.lookup.embedding_lookup import (
    group_embedding_lookup,
    group_embedding_lookup_sparse,
)
from sparse_operation_kit.optimizers import AdagradDecayOptimizer, AdamAsyncOptimizer, AdamWOptimizer
from sparse_operation_kit.tables.get_embedding_variable import EmbeddingVariableOption, get_embedding_variable
from sparse_operation_kit.tables.row_policies import (
    CBFFilter,
    CounterFilter,
    GlobalStepEvict,
    InitializerOption,
    L2WeightEvict,
)
from sparse_operation_kit.tables.storage_option import CacheStrategy, StorageOption, StorageType

__all__ = [
    "AdagradDecayOptimizer",
    "AdagradDecayOptimizerV2",
    "AdamAsyncOptimizer",
    "AdamWOptimizer",
    "CBFFilter",
    "CacheStrategy",
    "CollectiveStrategy",
    "CounterFilter",
    "DataFrame",
    "EmbeddingVariableOption",
    "GlobalStepEvict",
    "IncrementalSaver",
    "InitializerOption",
    "L2WeightEvict",
    "ParquetDataset",
    "StorageOption",
    "StorageType",
    "WorkQueue",
    "adaptive_embedding_lookup_sparse",
    "categorical_column_with_adaptive_embedding",
    "categorical_column_with_embedding",
    "categorical_column_with_multihash",
    "embedding_lookup_sparse_multi_dim",
    "enable_distributed_strategy",
    "enable_group_embedding",
    "fused_embedding_lookup_sparse",
    "fused_safe_embedding_lookup_sparse",
    "get_dynamic_dimension_embedding_variable",
    "get_embedding_variable",
    "get_multihash_variable",
    "group_embedding_column_scope",
    "group_embedding_lookup",
    "group_embedding_lookup_sparse",
    "install",
    "is_installed",
    "make_prefetch_hook",
    "mark_target_node",
    "read_parquet",
    "safe_embedding_lookup_multi_dim",
    "staged",
    "sequence_categorical_column_with_embedding",
    "uninstall",
    "use_deeprec_arithmetic",
    "uses_deeprec_arithmetic",
]

# In DeepRec these two differ in the shape of a slot of ordinary variables, not in what they compute.
AdagradDecayOptimizerV2 = AdagradDecayOptimizer

installation.add_names(globals())
install()


def __getattr__(name: str) -> Any:
    error = error_in_this_package(name)
    raise AttributeError(error or f"module {__name__!r} has no attribute {name!r}")
