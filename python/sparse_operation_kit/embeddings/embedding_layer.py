"""EmbeddingLayer: the base class of the layers, with one variable and lookups in it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.arguments import whole_number
from sparse_operation_kit.graphs.graph_keys import GraphKeys
from sparse_operation_kit.lookup import group
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


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
            initializer=embedding_initializer,
            trainable=kwargs.get("trainable", True),
            use_hashtable=use_hashtable,
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
