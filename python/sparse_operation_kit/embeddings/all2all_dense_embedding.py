"""All2AllDenseEmbedding: a layer that looks up a fixed number of keys per slot, without combining."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.embeddings.embedding_layer import EmbeddingLayer
from sparse_operation_kit.lookup import group


class All2AllDenseEmbedding(EmbeddingLayer):
    """Looks up a row for every key, as `tf.nn.embedding_lookup` does.

    `layer(inputs, training=True)` takes keys `[batch, slot_num, nnz_per_slot]` and returns
    `[batch, slot_num, nnz_per_slot, embedding_vec_size]`, in the layer's compute dtype. Keys may have another
    rank, known when the graph is built: `[batch, slot_num]`, for example, if `nnz_per_slot` is 1. Their
    number has to be a multiple of `slot_num * nnz_per_slot`, and the output has the shape of the keys and one
    more dimension. With `dynamic_input=True` the layer takes keys `[n]`, where `n` may be zero, and returns
    `[n, embedding_vec_size]`.

    With `training=False` (a Python bool or a scalar bool tensor) an unseen key reads as its initial value and
    is not inserted, and the lookup has no gradients.

    Attributes:
      embedding_variable: The layer's `EmbeddingVariable`.
    """

    def __init__(
        self,
        max_vocabulary_size_per_gpu: int | None,
        embedding_vec_size: int,
        slot_num: int,
        nnz_per_slot: int,
        dynamic_input: bool = False,
        use_hashtable: bool = True,
        key_dtype: tf.DType = tf.int64,
        embedding_initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        """Creates the layer and its variable.

        Args:
          max_vocabulary_size_per_gpu: Maximum number of rows per rank. A new key beyond it is an error in
            training. None: no limit.
          embedding_vec_size: Number of floats in a row.
          slot_num: Number of features per sample.
          nnz_per_slot: Number of keys per slot.
          dynamic_input: Whether the keys have the shape `[n]` instead, as the output of `tf.unique`.
          use_hashtable: False uses the key as the row number; keys are then in
            [0, max_vocabulary_size_per_gpu * ranks).
          key_dtype: tf.int64, tf.int32 or tf.uint32, the dtype of the input.
          embedding_initializer: See `EmbeddingVariable`'s `initializer`.
          **kwargs: `name`, `dtype` (the compute dtype or policy) and `trainable`, as for a Keras layer; and
            `row_dtype`, `slot_dtype`, `rounding` and `memory`, `EmbeddingVariable`'s `dtype`, `slot_dtype`,
            `rounding` and `memory`.

        Raises:
          TypeError, ValueError: An argument is of the wrong type or out of range.
        """
        slots = self._count("slot_num", slot_num)
        nnz = self._count("nnz_per_slot", nnz_per_slot)
        super().__init__(
            max_vocabulary_size_per_gpu,
            embedding_vec_size,
            use_hashtable,
            key_dtype,
            embedding_initializer,
            **kwargs,
        )
        self._keys_shape = [None] if dynamic_input else [None, slots, nnz]
        self._keys_of_sample = 1 if dynamic_input else slots * nnz
        self._takes_other_ranks = not dynamic_input

    def call(self, inputs: tf.Tensor, training: bool | tf.Tensor = True) -> tf.Tensor:
        """Returns one row for every key; the output has the shape of the keys and one more dimension.

        Raises:
          TypeError: `inputs` is not a dense tensor, or not of `key_dtype`.
          ValueError: `inputs` is known not to have a shape that the layer takes. If that is only known when
            the graph runs, running it raises an InvalidArgumentError.
        """
        return self._look_up(inputs, training)

    def _lookup_of(self, inputs: tf.Tensor) -> group.Lookup:
        return group.DenseLookup(self.embedding_variable, self._shaped(inputs))

    def _shaped(self, inputs: tf.Tensor) -> tf.Tensor:
        name = self.embedding_variable.m_var_name
        if isinstance(inputs, (tf.SparseTensor, tf.RaggedTensor)):
            raise TypeError(f"All2AllDenseEmbedding of '{name}' takes a dense tensor of keys, not {inputs!r}")
        keys = tf.convert_to_tensor(inputs)
        if self._takes_other_ranks and keys.shape.rank not in (None, 3):
            return self._of_whole_samples(keys)
        if not keys.shape.is_compatible_with(self._keys_shape):
            raise ValueError(
                f"All2AllDenseEmbedding of '{name}' takes keys of shape {self._keys_shape}, not {keys.shape}"
            )
        if keys.shape.rank is not None and keys.shape[1:].is_fully_defined():
            return keys
        # An error of this op names the node, and so the variable.
        return tf.ensure_shape(keys, self._keys_shape, name=f"keys_of_{name.replace('/', '_')}")

    def _of_whole_samples(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the keys, checking their number when the graph is built or, if unknown then, when it runs.

        `keys` has a known number of dimensions.
        """
        name = self.embedding_variable.m_var_name
        known = 1
        for dimension in keys.shape.as_list():
            known *= 1 if dimension is None else dimension
        if known % self._keys_of_sample == 0:
            return keys
        if keys.shape.is_fully_defined():
            raise ValueError(
                f"All2AllDenseEmbedding of '{name}' takes keys of shape {self._keys_shape}, or of another "
                f"rank with a multiple of {self._keys_of_sample} keys; {keys.shape} has {known}"
            )
        check = tf.debugging.assert_equal(
            tf.size(keys, out_type=tf.int64) % self._keys_of_sample,
            tf.constant(0, tf.int64),
            message=f"All2AllDenseEmbedding of '{name}' takes a multiple of {self._keys_of_sample} keys",
        )
        with tf.control_dependencies([check]):
            return tf.identity(keys)
