"""EmbeddingLayer: the base class of the layers, with one variable; get_embedding finds layers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.arguments import whole_number
from sparse_operation_kit.graphs.graph_keys import GraphKeys
from sparse_operation_kit.lookup import group
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.storage_option import StorageOption

# The graph attribute that maps names to layers.
_GRAPH_ATTRIBUTE = "_sok_embedding_layers"


class EmbeddingLayer(compat.Layer):
    """A layer with its own embedding variable, created from the arguments that all SOK layers take.

    The layer adds itself to the graph collection `sok.GraphKeys.SparseOperationKitEmbeddingLayers`.

    Attributes:
      embedding_variable: The layer's `EmbeddingVariable`.
    """

    def __init__(
        self,
        max_vocabulary_size_per_gpu: int | None,
        embedding_vec_size: int,
        use_hashtable: bool,
        key_dtype: tf.DType,
        embedding_initializer: Any,
        *,
        row_dtype: tf.DType = tf.float32,
        slot_dtype: tf.DType = tf.float32,
        rounding: str = "stochastic",
        memory: str | StorageOption = "device",
        **kwargs: Any,
    ) -> None:
        """Creates the layer and its variable; the subclasses document the arguments."""
        super().__init__(**kwargs)
        self.embedding_variable = EmbeddingVariable(
            name=f"{self.name}/EmbeddingVariable",
            dim=self._count("embedding_vec_size", embedding_vec_size),
            capacity=None
            if max_vocabulary_size_per_gpu is None
            else self._count("max_vocabulary_size_per_gpu", max_vocabulary_size_per_gpu),
            key_dtype=key_dtype,
            dtype=row_dtype,
            initializer=embedding_initializer,
            trainable=kwargs.get("trainable", True),
            use_hashtable=use_hashtable,
            slot_dtype=slot_dtype,
            rounding=rounding,
            memory=memory,
        )
        tf.compat.v1.add_to_collection(GraphKeys.SparseOperationKitEmbeddingLayers, self)

    @property
    def var(self) -> EmbeddingVariable:
        """`embedding_variable`, under its name in the original SOK."""
        return self.embedding_variable

    @classmethod
    def _count(cls, argument: str, value: Any) -> int:
        """Returns `value`, an int of at least 1, or raises an error that names layer, argument and value."""
        return whole_number(value, f"{cls.__name__}: {argument}")

    # Nothing here branches on a tensor, and AutoGraph would rewrite all that is called, once in each process.
    # Keras reads the arguments of `call`, which the decorator would hide.
    @tf.autograph.experimental.do_not_convert
    def _look_up(self, inputs: Any, training: bool | tf.Tensor) -> tf.Tensor:
        """What `call` returns for its arguments."""
        return tf.cast(group.lookup_group([self._lookup_of(inputs)], training)[0], self.compute_dtype)

    def _lookup_of(self, inputs: Any) -> group.Lookup:
        """The lookup of the inputs of `call`; each layer defines it.

        Raises:
          TypeError, ValueError: The inputs do not fit the layer.
        """
        raise NotImplementedError


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
