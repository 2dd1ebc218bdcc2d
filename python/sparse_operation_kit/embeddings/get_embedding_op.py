"""get_embedding: layers that are made once in a graph and found again by name."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# The attribute of a graph that holds its layers by name.
_GRAPH_ATTRIBUTE = "_sok_embedding_layers"


def get_embedding(name: str, constructor: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Returns the layer called `name` of the default graph, making it where there is none.

    ::

        layer = sok.get_embedding("user", sok.All2AllDenseEmbedding, max_vocabulary_size_per_gpu=1024,
                                  embedding_vec_size=16, slot_num=10, nnz_per_slot=1)
        same_layer = sok.get_embedding("user")

    Args:
      name: Of the layer.
      constructor: Makes it, from `kwargs`: a class of this package.
      **kwargs: The constructor's arguments. Not looked at when the layer is there already.

    Raises:
      ValueError: There is no such layer and no constructor.
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
                "and no constructor to make it with"
            )
        layers[name] = constructor(**kwargs)
    return layers[name]
