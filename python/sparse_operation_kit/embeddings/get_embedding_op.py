"""get_embedding: layers that are created once per graph and then found by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# The graph attribute that maps names to layers.
_GRAPH_ATTRIBUTE = "_sok_embedding_layers"


def get_embedding(name: str, constructor: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Returns the layer called `name` of the default graph; creates it if it does not exist.

    ::

        layer = sok.get_embedding("user", sok.All2AllDenseEmbedding, max_vocabulary_size_per_gpu=1024,
                                  embedding_vec_size=16, slot_num=10, nnz_per_slot=1)
        same_layer = sok.get_embedding("user")

    Args:
      name: The name of the layer.
      constructor: Creates the layer from `kwargs`, for example a layer class of this package.
      **kwargs: The constructor's arguments, ignored if the layer exists.

    Raises:
      ValueError: There is no such layer, and no constructor is given.
    """
    graph = tf.compat.v1.get_default_graph()
    layers = getattr(graph, _GRAPH_ATTRIBUTE, None)
    if layers is None:
        layers = {}
        setattr(graph, _GRAPH_ATTRIBUTE, layers)
    if name not in layers:
        if constructor is None:
            raise ValueError(
                f"There is no embedding layer '{name}' in this graph (there are {sorted(layers)}), "
                "and no constructor was given to create it"
            )
        layers[name] = constructor(**kwargs)
    return layers[name]
