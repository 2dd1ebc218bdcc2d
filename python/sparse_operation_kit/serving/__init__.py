"""Models out of training: exports of whole models that processes without this library serve.

docs/serving.md is the guide.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.checkpoint import exporting
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.serving import stock_models, table_models
from sparse_operation_kit.serving.estimators import Exporter, export_saved_model
from sparse_operation_kit.serving.follower import Follower
from sparse_operation_kit.serving.session_exports import export, freeze

__all__ = ["Exporter", "Follower", "export", "export_saved_model", "freeze"]


def _as_checkpoint_errors(write: Callable[..., None]) -> Callable[..., None]:
    """Makes a function that writes its second argument raise CheckpointError, as the command line expects."""

    @functools.wraps(write)
    def wrapped(source: Any, folder: Any, **options: Any) -> None:
        try:
            write(source, folder, **options)
        except tf.errors.OpError as error:
            # TensorFlow 2 puts where the op was made before the reason.
            reason = re.sub(r"(?s)^.*?\nNode: [^\n]*\n", "", error.message).splitlines()[0]
            raise CheckpointError(folder, f"cannot be written: {reason}") from None
        except ValueError as error:
            raise CheckpointError(folder, f"cannot be written: {error}") from None

    return wrapped


exporting.FORMATS["saved_model"] = exporting.Format(
    _as_checkpoint_errors(table_models.write_saved_model),
    _as_checkpoint_errors(stock_models.rewrite),
)
exporting.FORMATS["saved_model_sok"] = exporting.Format(
    _as_checkpoint_errors(table_models.write_saved_model_sok)
)
