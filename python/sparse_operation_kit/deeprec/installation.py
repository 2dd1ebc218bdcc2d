"""Adds DeepRec's names to TensorFlow's namespaces, and removes them.

The names are those of `names.ADDED`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import How, Replacement, find_owner
from sparse_operation_kit.compat.namespaces import namespaces
from sparse_operation_kit.deeprec import (
    collective,
    column_arguments,  # noqa: F401 - registers entries
    config_fields,
    data_frame,
    dynamic_dimension,
    incremental_saver,
    lookups,  # noqa: F401 - registers entries
    multihash,
    program_rules,
)
from sparse_operation_kit.deeprec.names import ADDED
from sparse_operation_kit.deeprec.replacement_entries import Part
from sparse_operation_kit.tables import embedding_variable

# What DeepRec has in classes of TensorFlow's, by the name of the class.
_IN_CLASSES: Mapping[str, Mapping[str, Any]] = {
    "tf.GraphKeys": {
        "EMBEDDING_VARIABLES": program_rules.EMBEDDING_VARIABLES,
        "EV_INIT_SLOT_OPS": program_rules.EV_INIT_SLOT_OPS,
        "EV_INIT_VAR_OPS": program_rules.EV_INIT_VAR_OPS,
    },
    "tf.variable_scope": {"keep_weights": config_fields.keep_weights},
}
# What DeepRec has in modules of its own only.
_IN_MODULES_ONLY: Mapping[str, Any] = {
    "DynamicEmbeddingVariable": dynamic_dimension.DynamicDimensionVariable,
    "EmbeddingVariable": embedding_variable.EmbeddingVariable,
    "MultiHashVariable": multihash.MultiHashVariable,
    "_get_incremental_saver": incremental_saver.incremental_saver_of,
    "to_sparse": data_frame.to_sparse,
    "unbatch_and_to_sparse": data_frame.unbatch_and_to_sparse,
}
_REASON = "Programs written for DeepRec use it, from `tf` or from `tf.compat.v1`."
# A module that has only a module.
_EMBEDDING = "tensorflow.core.framework.embedding"
# The private modules of TensorFlow from which programs import names too, by the name or its namespace.
_ALSO_IN: Mapping[str, tuple[str, ...]] = {
    "feature_column": (
        "tensorflow.python.feature_column.feature_column_v2",
        "tensorflow.python.feature_column.sequence_feature_column",
    ),
    "nn": ("tensorflow.python.ops.embedding_ops",),
    **dict.fromkeys(
        (
            "CBFFilter",
            "CounterFilter",
            "EmbeddingVariableOption",
            "GlobalStepEvict",
            "InitializerOption",
            "L2WeightEvict",
            "StorageOption",
        ),
        ("tensorflow.python.ops.variables",),
    ),
    **dict.fromkeys(
        ("get_dynamic_dimension_embedding_variable", "get_embedding_variable", "get_multihash_variable"),
        ("tensorflow.python.ops.variable_scope",),
    ),
}


def install() -> None:
    """Adds DeepRec's names to `tf` and `tf.compat.v1` in the whole process. May be called repeatedly.

    Names that TensorFlow has already stay, but some functions also take DeepRec's arguments. Not thread-safe,
    like building graphs.
    """
    replacements.install(Part.NAMES)


def uninstall() -> None:
    """Removes the names that `install` has added.

    It also undoes `enable_distributed_strategy` and `use_deeprec_arithmetic`.
    """
    collective.disable_distributed_strategy()
    program_rules.forget_choice()
    replacements.uninstall(Part.NAMES)


def is_installed() -> bool:
    """Returns whether DeepRec's names are installed."""
    return replacements.is_installed(Part.NAMES)


def add_names(offered: Mapping[str, Any]) -> None:
    """Adds an entry, with its implementation, for each of `names.ADDED`.

    Args:
      offered: what this package has, by the last part of its name in DeepRec.
    """
    modules: dict[str, types.ModuleType] = {_EMBEDDING: types.ModuleType(_EMBEDDING)}
    for name in ADDED:
        owner, _, last = name.rpartition(".")
        if owner in _IN_CLASSES:
            _add(_in_class(owner, last), _IN_CLASSES[owner][last])
        elif name.startswith("tf."):
            _add(_in_namespace(name), offered[last])
        else:
            module = modules.setdefault(owner, types.ModuleType(owner))
            setattr(module, last, offered[last] if last in offered else _IN_MODULES_ONLY[last])
    modules[_EMBEDDING].config_pb2 = modules[f"{_EMBEDDING}.config_pb2"]  # type: ignore[attr-defined]
    for module in modules.values():
        _add(_new_module(module), module)


def _add(entry: Replacement, implementation: Any) -> None:
    replacements.add_entries([entry], {})
    replacements.implements(entry.name)(implementation)


def _in_class(owner: str, name: str) -> Replacement:
    return Replacement(f"tf.compat.v1.{owner[len('tf.') :]}.{name}", _REASON, Part.NAMES, How.ADDED)


def _in_namespace(name: str) -> Replacement:
    path = name[len("tf.") :]
    namespace = path.rpartition(".")[0]

    def find_owners() -> list[types.ModuleType]:
        return [*namespaces(namespace), *map(find_owner, _ALSO_IN.get(namespace or path, ()))]

    return Replacement(name, _REASON, Part.NAMES, How.ADDED, find_owners=find_owners)


def _new_module(module: types.ModuleType) -> Replacement:
    names = ", ".join(f"`{name}`" for name in sorted(_contents(module)))
    reason = f"Programs written for DeepRec import {names} from it."
    return Replacement(module.__name__, reason, Part.NAMES, How.ADDED_MODULE)


def _contents(module: types.ModuleType) -> Iterator[str]:
    return (name for name in vars(module) if not name.startswith("__"))
