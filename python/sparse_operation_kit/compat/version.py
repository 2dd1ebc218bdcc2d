"""The version of TensorFlow."""

from __future__ import annotations

import tensorflow as tf

_major, _minor = tf.__version__.split(".")[:2]
# (major, minor).
VERSION = (int(_major), int(_minor))
