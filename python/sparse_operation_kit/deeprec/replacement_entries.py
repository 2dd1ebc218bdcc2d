"""The list of what programs for DeepRec need changed in TensorFlow, beside the names that it lacks.

`installation` adds those names to the list.
"""

from __future__ import annotations

import enum
import functools
import sys
from collections.abc import Sequence

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import WITHOUT_ESTIMATOR, How, Replacement, with_function
from sparse_operation_kit.compat.internals import RefVariable
from sparse_operation_kit.compat.namespaces import namespaces


class Part(enum.Enum):
    """Entries that are installed together."""

    COLLECTIVE_TRAINING = "collective training"
    NAMES = "DeepRec's names"


INSTALLED_BY: dict[enum.Enum, str] = {
    Part.COLLECTIVE_TRAINING: (
        "DeepRec's `enable_distributed_strategy`, and a scope of a `CollectiveStrategy` until it ends"
    ),
    Part.NAMES: "`import sparse_operation_kit.deeprec`, and its `install`",
}
_of_collective_training, _of_names = (functools.partial(Replacement, part=part) for part in Part)

# The first version without tf.contrib.
_WITHOUT_CONTRIB = (2, 0)
_COLUMNS_V1 = "tensorflow.python.feature_column.feature_column"
_COLUMNS_V2 = "tensorflow.python.feature_column.feature_column_v2"
_EMBEDDING_OPS = "tensorflow.python.ops.embedding_ops"
_VARIABLES = "tensorflow.python.ops"
_INITIAL_VALUES = "Ordinary variables start with rank 0's values."

# The messages in which DeepRec has fields of its own.
CONFIG_MESSAGES = {
    "ConfigProto": "tensorflow.core.protobuf.config_pb2.ConfigProto",
    "GPUOptions": "tensorflow.core.protobuf.config_pb2.GPUOptions",
    "OptimizerOptions": "tensorflow.core.protobuf.config_pb2.OptimizerOptions",
    "RewriterConfig": "tensorflow.core.protobuf.rewriter_config_pb2.RewriterConfig",
}

# The modules in which DeepRec has names that are absent here.
OWNERS_OF_ABSENT_NAMES = ("tf", "tf.data", "tensorflow.python.distribute", "tensorflow.python.ops")
# The same, of modules that TensorFlow does not import by itself.
LATE_OWNERS_OF_ABSENT_NAMES = (
    "tensorflow.contrib.feature_column",
    "tensorflow.contrib.layers",
    "tensorflow.contrib.layers.python.layers.feature_column",
)

_ARGUMENTS = dict.fromkeys(
    ("nn.embedding_lookup_sparse", "nn.safe_embedding_lookup_sparse"),
    "DeepRec's has more arguments, and its filters count all occurrences of an id.",
)


def _arguments(name: str, *modules: str) -> Replacement:
    return _of_names(
        f"tf.{name}",
        _ARGUMENTS.get(name, "Programs written for DeepRec pass it arguments that TensorFlow does not have."),
        find_owners=with_function(name, *modules),
    )


def _errors_of_absent_names(owner: str) -> Replacement:
    is_public = owner.partition(".")[0] == "tf"
    if owner in LATE_OWNERS_OF_ABSENT_NAMES:
        return _of_names(
            f"{owner}.__getattr__",
            "The same, once a program imports the module.",
            how=How.ERRORS,
            before=_WITHOUT_CONTRIB,
            find_owners=lambda: [sys.modules[owner]] if owner in sys.modules else [],
        )
    return _of_names(
        f"{owner}.__getattr__",
        "The error for a name of DeepRec that is absent says what to use instead.",
        how=How.ERRORS,
        find_owners=(lambda: namespaces(owner.partition(".")[2])) if is_public else None,
    )


TABLE: Sequence[Replacement] = (
    _of_collective_training(
        "tf.compat.v1.train.Optimizer.compute_gradients",
        "Programs written for DeepRec expect gradients averaged over the ranks, and clip those.",
    ),
    _of_collective_training(
        f"{_VARIABLES}.resource_variable_ops.ResourceVariable._init_from_args", _INITIAL_VALUES
    ),
    _of_collective_training(
        f"{_VARIABLES}.ref_variable.RefVariable._init_from_args",
        _INITIAL_VALUES,
        find_owners=lambda: [RefVariable],
    ),
    *(
        _arguments(name, *modules)
        for name, *modules in (
            ("feature_column.embedding_column", _COLUMNS_V2),
            ("feature_column.input_layer", _COLUMNS_V1),
            ("feature_column.linear_model", _COLUMNS_V1),
            ("feature_column.shared_embedding_columns", _COLUMNS_V2),
            ("nn.embedding_lookup", _EMBEDDING_OPS),
            ("nn.embedding_lookup_sparse", _EMBEDDING_OPS),
            ("nn.safe_embedding_lookup_sparse", _EMBEDDING_OPS),
        )
    ),
    *(
        _of_names(f"{message}.{method}", reason, how=how)
        for message in CONFIG_MESSAGES.values()
        for method, reason, how in (
            ("__setattr__", "Programs written for DeepRec set fields that TensorFlow lacks.", How.WRAPPED),
            ("__getattr__", "Those fields can be read.", How.ADDED),
        )
    ),
    *(_errors_of_absent_names(owner) for owner in OWNERS_OF_ABSENT_NAMES + LATE_OWNERS_OF_ABSENT_NAMES),
    _of_names(
        "sys.meta_path",
        "The same for imports of such names and modules.",
        how=How.ADDED_FINDERS,
        find_owners=lambda: [sys],
    ),
    # Before those of hooks, which importing Estimator wraps.
    _of_names(
        "tf.compat.v1.estimator.RunConfig.__init__",
        "In DeepRec it has the argument `save_incremental_checkpoint_secs`.",
        before=WITHOUT_ESTIMATOR,
    ),
    _of_names(
        "tf.compat.v1.estimator.Estimator.train",
        "Saves incremental checkpoints if the RunConfig has `save_incremental_checkpoint_secs`.",
        before=WITHOUT_ESTIMATOR,
    ),
    _of_names(
        "tf.compat.v1.train.MonitoredTrainingSession",
        "In DeepRec it has the argument `save_incremental_checkpoint_secs`.",
        find_owners=with_function("train.MonitoredTrainingSession"),
    ),
    _of_names(
        "tf.compat.v1.train.Server.__init__",
        "DeepRec's protocols `grpc++` and `star_server` mean grpc, the only one here; the log says so once.",
    ),
    _of_names(
        "tf.compat.v1.train.CheckpointSaverHook.__init__",
        "In DeepRec it has the argument `incremental_save_secs`.",
    ),
    _of_names(
        "tf.compat.v1.train.Saver.__init__",
        "In DeepRec it has the arguments `incremental_save_restore` and `incremental_include_normal_var`.",
    ),
    _of_names(
        "tf.compat.v1.train.Scaffold.__init__", "In DeepRec it has the argument `incremental_save_restore`."
    ),
)

replacements.add_entries(TABLE, INSTALLED_BY)
