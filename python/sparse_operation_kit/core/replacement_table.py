"""Everything that the library changes in TensorFlow: the one list of it.

An entry says what is changed and why. The module that implements it registers the implementation
(`core.replacements.implements`), and `core.replacements.install` and `uninstall` go through the entries of a
part. docs/tensorflow-changes.md shows the table.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat


class Part(enum.Enum):
    """Entries that are installed together."""

    GRADIENT_TAPES = "gradient tapes"
    OPTIMIZERS = "optimizers"
    SAVERS = "savers"
    FEATURE_COLUMNS = "feature columns"
    COLLECTIVE_TRAINING = "collective training"
    DEEPREC_NAMES = "DeepRec's names"


# Who installs the entries of a part, and when.
INSTALLED_BY: dict[Part, str] = {
    Part.GRADIENT_TAPES: "every `EmbeddingVariable`, when it is made",
    Part.OPTIMIZERS: (
        "every `EmbeddingVariable`, when it is made; `sok.OptimizerScope`, when it is entered; and by "
        "collective training"
    ),
    Part.SAVERS: "every `EmbeddingVariable`, when it is made",
    Part.FEATURE_COLUMNS: (
        "`categorical_column_with_embedding` and `group_embedding_column_scope`, when they are called"
    ),
    Part.COLLECTIVE_TRAINING: (
        "DeepRec's `enable_distributed_strategy`, and a scope of a `CollectiveStrategy` until it ends"
    ),
    Part.DEEPREC_NAMES: "`import sparse_operation_kit.deeprec`, and its `install`",
}
# What every embedding variable needs.
OF_EMBEDDING_VARIABLES = (Part.GRADIENT_TAPES, Part.OPTIMIZERS, Part.SAVERS)


class How(enum.Enum):
    """How an entry changes TensorFlow."""

    WRAPPED = "wrapped"  # the function gets a wrapper, which may call it
    DISPATCHED = "dispatched"  # TensorFlow calls our function for some types of arguments
    ADDED = "added"  # TensorFlow gets a name that it does not have
    ADDED_MODULE = "added module"  # a module of that name can be imported


# The oldest TensorFlow version, (major, minor), that the library supports.
_OLDEST = (2, 15)


@dataclasses.dataclass(frozen=True)
class Replacement:
    """One entry of the table.

    Attributes:
      name: the dotted name of what is changed; unique.
      part: what it is installed with.
      reason: why what TensorFlow has is not enough.
      how: how it is changed.
      since: the first TensorFlow version, (major, minor), that needs it.
      before: the first later one that does not; None: there is none.
      find_owners: returns the classes or modules whose attribute, the last part of the name, is changed.
        None: the name says which one it is.
    """

    name: str
    part: Part
    reason: str
    how: How = How.WRAPPED
    since: tuple[int, int] = _OLDEST
    before: tuple[int, int] | None = None
    find_owners: Callable[[], Sequence[Any]] | None = None

    @property
    def attribute(self) -> str:
        """The name of what is changed, within its owner."""
        return self.name if self.how == How.ADDED_MODULE else self.name.rpartition(".")[2]

    def owners(self) -> Sequence[Any]:
        """The classes or modules whose attribute is changed; none where this TensorFlow has none.

        Raises:
          AttributeError: This TensorFlow has no owner of that name.
        """
        if self.how == How.ADDED_MODULE:
            return [None]
        if self.find_owners is not None:
            return self.find_owners()
        return [_find(self.name.rpartition(".")[0])]

    def is_needed(self, version: tuple[int, int]) -> bool:
        """Whether TensorFlow of a version, (major, minor), needs it."""
        return self.since <= version and (self.before is None or version < self.before)


def _find(name: str) -> Any:
    """The class or module of a dotted name that begins with `tf` or with the name of a module."""
    parts = name.split(".")
    if parts[0] == "tf":
        return functools.reduce(getattr, parts[1:], tf)
    # The longest beginning that is a module: `tensorflow.python` is no attribute of `tensorflow`.
    for end in range(len(parts), 1, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[end:], found)
    raise AttributeError(f"This TensorFlow has no {name}")


def _legacy_keras_optimizers() -> list[type]:
    return [module.Optimizer for _, module in compat.legacy_keras_optimizers()]


_V1_OPTIMIZER = "tf.compat.v1.train.Optimizer"
_LEGACY_OPTIMIZER = "tf.keras.optimizers.legacy.Optimizer"
_SAVER = "tensorflow.python.training.saver.Saver"
_SAVER_BUILDER = "tensorflow.python.training.saver.BaseSaverBuilder"
_SAVER_HOOK = "tensorflow.python.training.basic_session_run_hooks.CheckpointSaverHook"
_COLUMNS_V1 = "tensorflow.python.feature_column.feature_column"
_COLUMNS_V2 = "tensorflow.python.feature_column.feature_column_v2"
_VARIABLES = "tensorflow.python.ops"

_NOT_THE_ROWS = "TensorFlow's checkpoints take whole tensors, and a table is none."
_MAKES_COLUMNS = "Columns over unbounded keys have embedding variables and belong to groups."
_WEIGHTS_IN_TABLES = "The weights of unbounded keys are the rows of an embedding variable."


def _in_namespaces(path: str) -> Callable[[], Sequence[Any]]:
    """Finds a namespace within `tf` and within `tf.compat.v1`; the empty path is these themselves."""
    return lambda: [
        functools.reduce(getattr, filter(None, path.split(".")), root) for root in (tf, tf.compat.v1)
    ]


def _deeprec_name(name: str) -> Replacement:
    return Replacement(
        f"tf.{name}",
        Part.DEEPREC_NAMES,
        "Programs written for DeepRec use it, from `tf` or from `tf.compat.v1`.",
        How.ADDED,
        find_owners=_in_namespaces(name.rpartition(".")[0]),
    )


TABLE: tuple[Replacement, ...] = (
    Replacement(
        "tf.GradientTape.jacobian",
        Part.GRADIENT_TAPES,
        "A Jacobian with respect to a table would be dense; the error says what to do.",
    ),
    Replacement(
        f"{_V1_OPTIMIZER}.apply_gradients",
        Part.OPTIMIZERS,
        "Slots of a table lie in its rows, and its update is an op of its own.",
    ),
    Replacement(
        f"{_LEGACY_OPTIMIZER}.apply_gradients",
        Part.OPTIMIZERS,
        "Slots of a table lie in its rows, and its update is an op of its own.",
        find_owners=_legacy_keras_optimizers,
    ),
    Replacement(
        f"{_LEGACY_OPTIMIZER}.get_slot",
        Part.OPTIMIZERS,
        "There is no variable for a table's slot: None instead of a KeyError.",
        find_owners=_legacy_keras_optimizers,
    ),
    Replacement(
        "tf.keras.optimizers.Optimizer.apply_gradients",
        Part.OPTIMIZERS,
        "Keras' newer optimizers cannot train tables; the error says which can.",
        find_owners=compat.other_keras_optimizers,
    ),
    Replacement(
        f"{_SAVER_BUILDER}._build_internal",
        Part.SAVERS,
        "A table that a Saver is given under another name is saved under that name.",
    ),
    Replacement(f"{_SAVER_BUILDER}._AddSaveOps", Part.SAVERS, _NOT_THE_ROWS),
    Replacement(f"{_SAVER_BUILDER}._AddShardedSaveOps", Part.SAVERS, _NOT_THE_ROWS),
    Replacement(f"{_SAVER_BUILDER}._AddRestoreOps", Part.SAVERS, _NOT_THE_ROWS),
    Replacement(
        f"{_SAVER_BUILDER}._AddShardedRestoreOps",
        Part.SAVERS,
        "Nothing is assigned on any device before all tables are known to be sound.",
    ),
    Replacement(
        f"{_SAVER}.save",
        Part.SAVERS,
        "All ranks save together, and return or raise together.",
    ),
    Replacement(
        f"{_SAVER}.restore",
        Part.SAVERS,
        "An error for a damaged table names the checkpoint.",
    ),
    Replacement(
        f"{_SAVER}._MaybeDeleteOldCheckpoints",
        Part.SAVERS,
        "`max_to_keep` leaves what another process has saved under the same prefix.",
    ),
    Replacement(
        f"{_SAVER_HOOK}.begin",
        Part.SAVERS,
        "The ranks' clocks differ; rank 0's decides when all save. This adds the ops for it.",
    ),
    Replacement(
        f"{_SAVER_HOOK}.after_create_session",
        Part.SAVERS,
        "As `begin`: gives the hook a timer that asks rank 0.",
    ),
    Replacement(f"{_SAVER_HOOK}.after_run", Part.SAVERS, "As `begin`: asks that timer."),
    Replacement(f"{_COLUMNS_V2}.EmbeddingColumn.__new__", Part.FEATURE_COLUMNS, _MAKES_COLUMNS),
    Replacement(f"{_COLUMNS_V2}.SharedEmbeddingColumn.__new__", Part.FEATURE_COLUMNS, _MAKES_COLUMNS),
    Replacement(f"{_COLUMNS_V1}._SharedEmbeddingColumn.__new__", Part.FEATURE_COLUMNS, _MAKES_COLUMNS),
    Replacement(
        f"{_COLUMNS_V2}.IndicatorColumn.__new__",
        Part.FEATURE_COLUMNS,
        "An indicator needs a number of buckets, which unbounded keys do not have; the error says so.",
    ),
    Replacement(
        f"{_COLUMNS_V1}._internal_input_layer",
        Part.FEATURE_COLUMNS,
        "The columns of a group are looked up in one op.",
    ),
    Replacement(
        "tf.keras.layers.DenseFeatures.call",
        Part.FEATURE_COLUMNS,
        "The columns of a group are looked up in one op.",
        find_owners=compat.dense_features_layers,
    ),
    Replacement(
        f"{_COLUMNS_V1}._LinearModel.call",
        Part.FEATURE_COLUMNS,
        "The weights of all columns that have them in tables are one lookup.",
    ),
    Replacement(
        f"{_COLUMNS_V1}._create_categorical_column_weighted_sum", Part.FEATURE_COLUMNS, _WEIGHTS_IN_TABLES
    ),
    Replacement(f"{_COLUMNS_V1}._FCLinearWrapper.build", Part.FEATURE_COLUMNS, _WEIGHTS_IN_TABLES),
    Replacement(
        f"{_COLUMNS_V2}._StateManagerImpl.create_variable",
        Part.FEATURE_COLUMNS,
        "Estimator's own linear models read all weights, which a table cannot give; the error says so.",
        before=(2, 16),  # the first without Estimator
    ),
    Replacement(
        f"{_V1_OPTIMIZER}.compute_gradients",
        Part.COLLECTIVE_TRAINING,
        "Programs written for DeepRec expect averages over the ranks, and clip them.",
    ),
    Replacement(
        f"{_VARIABLES}.resource_variable_ops.ResourceVariable._init_from_args",
        Part.COLLECTIVE_TRAINING,
        "Ordinary variables begin with rank 0's values.",
    ),
    Replacement(
        f"{_VARIABLES}.ref_variable.RefVariable._init_from_args",
        Part.COLLECTIVE_TRAINING,
        "Ordinary variables begin with rank 0's values.",
    ),
    Replacement(
        "tf.linalg.global_norm",
        Part.COLLECTIVE_TRAINING,
        "The norm of a table's gradient counts the rows of all ranks.",
        How.DISPATCHED,
    ),
    Replacement(
        "tf.clip_by_norm",
        Part.COLLECTIVE_TRAINING,
        "The norm of a table's gradient counts the rows of all ranks.",
        How.DISPATCHED,
    ),
    *(
        _deeprec_name(name)
        for name in (
            "CBFFilter",
            "CounterFilter",
            "EmbeddingVariableOption",
            "GlobalStepEvict",
            "InitializerOption",
            "L2WeightEvict",
            "get_embedding_variable",
            "config.experimental.enable_distributed_strategy",
            "feature_column.categorical_column_with_embedding",
            "feature_column.group_embedding_column_scope",
            "nn.group_embedding_lookup",
            "nn.group_embedding_lookup_sparse",
            "train.AdagradDecayOptimizer",
            "train.AdamAsyncOptimizer",
            "train.AdamWOptimizer",
        )
    ),
    Replacement(
        "tensorflow.python.distribute.group_embedding_collective_strategy",
        Part.DEEPREC_NAMES,
        "Programs written for DeepRec import CollectiveStrategy from it.",
        How.ADDED_MODULE,
    ),
)
