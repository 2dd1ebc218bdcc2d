"""Gives TensorFlow's functions of feature columns the arguments that DeepRec adds to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparse_operation_kit.core import replacements

_COLUMNS = "tf.feature_column"


@replacements.implements(
    f"{_COLUMNS}.embedding_column",
    f"{_COLUMNS}.shared_embedding_columns",
    f"{_COLUMNS}.linear_model",
)
def with_do_fusion(original: Callable) -> Callable:
    """Wraps a function that takes `do_fusion` in DeepRec.

    There it selects fused ops. A lookup in a table is one op here in any case, and the lookups of ordinary
    variables are TensorFlow's.
    """

    def function(*args: Any, do_fusion: Any = False, **kwargs: Any) -> Any:
        _check_do_fusion(do_fusion)
        return original(*args, **kwargs)

    return function


def _check_do_fusion(do_fusion: Any) -> None:
    if do_fusion is not None and not isinstance(do_fusion, (bool, np.bool_, str)):
        raise TypeError(f"do_fusion must be a bool or the name of a kind of fusion, not {do_fusion!r}")
