"""The version of TensorFlow that a program gets from `pkg_resources`.

Some scripts of DeepRec's model zoo refuse to run unless the version says that this is DeepRec.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def importing_distributions(
    import_: Callable[..., Any], is_of_program: Callable[[str], bool]
) -> Callable[..., Any]:
    """Wraps `__import__`: the program's files get a `pkg_resources` for which TensorFlow is DeepRec."""

    @functools.wraps(import_)
    def import_distributions(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        module = import_(name, globals, locals, fromlist, level)
        if name == "pkg_resources" and not level and is_of_program((globals or {}).get("__file__", "")):
            return _with_deeprec(module)
        return module

    return import_distributions


@functools.lru_cache(maxsize=None)
def _with_deeprec(pkg_resources: types.ModuleType) -> types.ModuleType:
    """A copy of the module whose `get_distribution` finds DeepRec under TensorFlow's name."""

    @functools.wraps(pkg_resources.get_distribution)
    def get_distribution(dist: Any) -> Any:
        if isinstance(dist, str) and dist.lower() == "tensorflow":
            return pkg_resources.Distribution(project_name=dist, version=f"{tf.__version__}+deeprec")
        return pkg_resources.get_distribution(dist)

    copy = types.ModuleType(pkg_resources.__name__, pkg_resources.__doc__)
    vars(copy).update(vars(pkg_resources), get_distribution=get_distribution)
    return copy
