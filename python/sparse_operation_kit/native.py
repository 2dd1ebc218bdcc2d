"""Loads the op libraries: next to the package in a wheel, under bazel-bin or in the runfiles after a build.

`ops` are those of `sok_ops.so`, loaded with the package. `horovod_ops()` are those of `sok_horovod.so`, which
needs Horovod and is loaded when they are first asked for.
"""

import ctypes
import functools
import json
import os
import types

import tensorflow as tf

_LIBRARY = "sok_ops.so"
_HOROVOD_LIBRARY = "sok_horovod.so"
# The release whose headers sok_horovod.so is built with: it shares C++ classes with Horovod's library.
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
      ImportError: There is none; the message names the places that were looked at.
    """
    paths = _candidates(library)
    for path in paths:
        if os.path.exists(path):
            return path
    option = " --horovod" if library == _HOROVOD_LIBRARY else ""
    raise ImportError(
        f"The op library {library} is not built. Build it with `tools/setup.sh{option} && bazel build "
        f"//sok_ops:{library}` or install the wheel. Looked at: {', '.join(paths)}"
    )


def _load(library: str) -> types.ModuleType:
    path = library_path(library)
    try:
        return tf.load_op_library(path)
    except tf.errors.NotFoundError as error:
        raise ImportError(
            f"{path} does not fit TensorFlow {tf.__version__}: an op library works with the TensorFlow minor "
            f"version that it was built against. {error.message}"
        ) from error


def _check_horovod() -> None:
    try:
        import horovod
        import horovod.tensorflow as hvd
    except ImportError as error:
        raise ImportError(
            f"More than one rank needs Horovod {_HOROVOD_VERSION} with TensorFlow, which cannot be imported: "
            f"{error}. `tools/setup.sh --horovod` installs it."
        ) from error
    if horovod.__version__ != _HOROVOD_VERSION:
        raise ImportError(
            f"Horovod is {horovod.__version__}; {_HOROVOD_LIBRARY} works with {_HOROVOD_VERSION}."
        )
    if hvd.cuda_built() or hvd.rocm_built():
        raise ImportError(
            f"This Horovod is built for GPUs; {_HOROVOD_LIBRARY} works with one built for the CPU."
        )


@functools.lru_cache(maxsize=None)
def optimizer_rules() -> dict:
    """Returns the rules that tables are trained by, as the engine states them (cc/optimizers/rules.h).

    By name: `hyper`, the ranges of its hyper-parameters by name, in the order in which the ops take their
    values; `slots`, by name, in the order of a row's record; `untouched`, what a step does to rows without a
    gradient ("stay", "slots decay", "move"); and `source`, whose arithmetic it is.
    """
    function = ctypes.CDLL(library_path()).SokOptimizerRules
    function.restype = ctypes.c_char_p
    return json.loads(function().decode())


@functools.lru_cache(maxsize=None)
def horovod_ops() -> types.ModuleType:
    """Returns the ops that move data between ranks (`sok_exchange`, `sok_exchange_statistics`).

    Imports Horovod, whose symbols the library refers to; does not initialize it. Any thread may call this.

    Raises:
      ImportError: Horovod is missing or another one than the library was built with, or the library is; the
        message says what to do.
    """
    _check_horovod()
    return _load(_HOROVOD_LIBRARY)


ops = _load(_LIBRARY)
