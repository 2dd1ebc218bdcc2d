"""Loads the op library: next to the package in a wheel, under bazel-bin or in the runfiles after a build."""

import os

import tensorflow as tf

_LIBRARY = "sok_ops.so"


def _candidates() -> list[str]:
    package = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(package))
    return [
        os.path.join(package, _LIBRARY),
        os.path.join(root, "sok_ops", _LIBRARY),
        os.path.join(root, "bazel-bin", "sok_ops", _LIBRARY),
    ]


def library_path() -> str:
    """Returns the path of the op library.

    Raises:
      ImportError: There is none; the message names the places that were looked at.
    """
    paths = _candidates()
    for path in paths:
        if os.path.exists(path):
            return path
    raise ImportError(
        f"The op library {_LIBRARY} is not built. Build it with `bazel build //sok_ops:{_LIBRARY}` or "
        f"install the wheel. Looked at: {', '.join(paths)}"
    )


def _load():
    path = library_path()
    try:
        return tf.load_op_library(path)
    except tf.errors.NotFoundError as error:
        raise ImportError(
            f"{path} does not fit TensorFlow {tf.__version__}: an op library works with the TensorFlow minor "
            f"version that it was built against. {error.message}"
        ) from error


ops = _load()
