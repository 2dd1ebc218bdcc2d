"""Loads the op libraries from the package (in a wheel), or from bazel-bin or the runfiles (after a build).

`ops` has the ops of `sok_ops.so`, which is loaded with the package. The environment variable
`SOK_OPS_LIBRARY` names another file in its place, or gives a path; tests of GPUs use it. `horovod_ops()`
returns the ops of `sok_horovod.so`, or of `sok_horovod_gpu.so` if Horovod is built for GPUs. Both need
Horovod and are loaded at the first call.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import types

import tensorflow as tf

_LIBRARY = os.environ.get("SOK_OPS_LIBRARY") or "sok_ops.so"
# The libraries for Horovod built without CUDA and with it. They are built with the headers of this release,
# because they share C++ classes with Horovod's library.
_HOROVOD_LIBRARIES = {False: "sok_horovod.so", True: "sok_horovod_gpu.so"}
_HOROVOD_VERSION = "0.28.1"


def _candidates(library: str) -> list[str]:
    package = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(package))
    return [
        os.path.join(package, library),
        os.path.join(root, "sok_ops", library),
        os.path.join(root, "bazel-bin", "sok_ops", library),
    ]


def library_path(library: str = _LIBRARY) -> str:
    """Returns the path of an op library.

    Raises:
      ImportError: The library is not found; the message lists the paths searched.
    """
    paths = _candidates(library)
    for path in paths:
        if os.path.exists(path):
            return path
    option = " --horovod" if library in _HOROVOD_LIBRARIES.values() else ""
    raise ImportError(
        f"The op library {library} is not built. Build it with `tools/setup.sh{option} && bazel build "
        f"//sok_ops:{library}` or install the wheel. Paths searched: {', '.join(paths)}"
    )


def _load(library: str) -> types.ModuleType:
    path = library_path(library)
    try:
        return tf.load_op_library(path)
    except tf.errors.NotFoundError as error:
        raise ImportError(
            f"{path} does not fit TensorFlow {tf.__version__}: an op library works only with the TensorFlow "
            f"minor version that it was built against. {error.message}"
        ) from error


def _library_for_horovod() -> str:
    """Returns the library that fits the installed Horovod."""
    try:
        import horovod
        import horovod.tensorflow as hvd
    except ImportError as error:
        raise ImportError(
            f"More than one rank needs Horovod {_HOROVOD_VERSION} with TensorFlow, which cannot be imported: "
            f"{error}. `tools/setup.sh --horovod` installs it."
        ) from error
    library = _HOROVOD_LIBRARIES[bool(hvd.cuda_built())]
    if horovod.__version__ != _HOROVOD_VERSION:
        raise ImportError(f"Horovod is {horovod.__version__}; {library} works with {_HOROVOD_VERSION}.")
    if hvd.rocm_built():
        raise ImportError(f"This Horovod is built for ROCm; {library} works with one built for CPUs or CUDA.")
    return library


@functools.lru_cache(maxsize=None)
def optimizer_rules() -> dict:
    """Returns the update rules of the engine's optimizers (cc/optimizers/rules.h), by the rule's name.

    Each rule is a dict. `hyper`: the ranges of the hyper-parameters by name, in the order in which the ops
    take their values. `slots`: the slots by name, in the order of a row's record, each a dict of `fill`, the
    hyper-parameter that is its initial value (None: zero), and `one_per_row`, whether it is one float instead
    of `dim`. `untouched`: what a step does to rows without a gradient ("stay", "slots decay" or "move").
    `source`: where the formula comes from.
    """
    function = ctypes.CDLL(library_path()).SokOptimizerRules
    function.restype = ctypes.c_char_p
    return json.loads(function().decode())


@functools.lru_cache(maxsize=None)
def horovod_ops() -> types.ModuleType:
    """Returns the ops that move data between ranks (`sok_exchange`, `sok_exchange_statistics`).

    Imports Horovod, whose symbols the library needs, but does not initialize it. Thread-safe.

    Raises:
      ImportError: Horovod or the library is missing, or Horovod is not the version that the library was built
        with. The message says what to do.
    """
    return _load(_library_for_horovod())


ops = _load(_LIBRARY)
