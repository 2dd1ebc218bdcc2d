"""The API of the original SOK's `sparse_operation_kit.experiment`, on the tables of this package.

Variables are embedding variables and lookups are group lookups, so everything in `sparse_operation_kit` works
with them. They need no `sok.Init`: `tf.compat.v1.global_variables_initializer()` is enough. Works in graphs
with sessions only.
"""

from __future__ import annotations

from sparse_operation_kit.experiment.distributed_variable import (
    DistributedVariable,
    LocalizedVariable,
    Variable,
)
from sparse_operation_kit.experiment.dump_load import dump, load
from sparse_operation_kit.experiment.dynamic_variable import DynamicVariable, assign, export
from sparse_operation_kit.experiment.initialize import filter_variables, init
from sparse_operation_kit.experiment.lookup import all2all_dense_embedding, lookup_sparse
from sparse_operation_kit.experiment.optimizer import SGD, OptimizerWrapper

__all__ = [
    "SGD",
    "DistributedVariable",
    "DynamicVariable",
    "LocalizedVariable",
    "OptimizerWrapper",
    "Variable",
    "all2all_dense_embedding",
    "assign",
    "dump",
    "export",
    "filter_variables",
    "init",
    "load",
    "lookup_sparse",
]
