"""DistributedEmbedding: a layer that looks up and combines a variable number of keys per slot."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.embeddings.embedding_layer import EmbeddingLayer
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator

# Exchanging rows sends one row per distinct key of a step; exchanging sums at most one row per slot and rank.
KEYS_PER_RANK_FOR_SUMS = 8


def _better_exchange(max_nnz: int) -> str:
    return "sums" if max_nnz >= KEYS_PER_RANK_FOR_SUMS * communicator().size else "rows"


class DistributedEmbedding(EmbeddingLayer):
    """Looks up the keys of each slot and combines their rows, as `tf.nn.embedding_lookup_sparse` does.

    `layer(inputs, training=True)` takes a SparseTensor of keys with
    `dense_shape = [batch * slot_num, max_nnz]`: row `b * slot_num + s` holds the keys of slot `s` of sample
    `b`. It returns `[batch, slot_num, embedding_vec_size]`, in the layer's compute dtype. A key that occurs
    twice counts twice; a row without keys gives zeros. The batch size may differ from step to step.

    With `training=False` (a Python bool or a scalar bool tensor) an unseen key reads as its initial value and
    is not inserted, and the lookup has no gradients.

    Attributes:
      embedding_variable: The layer's `EmbeddingVariable`.
    """

    def __init__(
        self,
        combiner: str,
        max_vocabulary_size_per_gpu: int | None,
        embedding_vec_size: int,
        slot_num: int,
        max_nnz: int,
        max_feature_num: int = 1,
        use_hashtable: bool = True,
        key_dtype: tf.DType = tf.int64,
        embedding_initializer: Any = None,
        *,
        exchange: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Creates the layer and its variable.

        Args:
          combiner: "sum" or "mean"; case does not matter.
          max_vocabulary_size_per_gpu: Maximum number of rows per rank. A new key beyond it is an error in
            training. None: no limit.
          embedding_vec_size: Number of floats in a row.
          slot_num: Number of features per sample.
          max_nnz: Expected maximum number of keys per slot. It only decides the default of `exchange`: unlike
            in the original SOK it sizes no buffers, and more keys are no error.
          max_feature_num: Maximum number of keys per sample. Checked, but not used.
          use_hashtable: False uses the key as the row number; keys are then in
            [0, max_vocabulary_size_per_gpu * ranks).
          key_dtype: tf.int64, tf.int32 or tf.uint32, the dtype of the input.
          embedding_initializer: See `EmbeddingVariable`'s `initializer`.
          exchange: What ranks send each other. "rows": the row of each distinct key; the rank that looks the
            key up combines the rows. "sums": each owner combines its rows of a slot and sends the sum, which
            is faster for slots of many keys with few duplicates. Both give the same numbers up to the order
            of a sum. None: "sums" if `max_nnz >= 8 * ranks`, else "rows".
          **kwargs: `name`, `dtype` (the compute dtype or policy) and `trainable`, as for a Keras layer; and
            `row_dtype`, `slot_dtype`, `rounding` and `memory`, `EmbeddingVariable`'s `dtype`, `slot_dtype`,
            `rounding` and `memory`.

        Raises:
          TypeError, ValueError: An argument is of the wrong type or out of range.
        """
        if not isinstance(combiner, str) or combiner.lower() not in ("sum", "mean"):
            raise ValueError(f"DistributedEmbedding: combiner must be 'sum' or 'mean', not {combiner!r}")
        if exchange not in (None, "rows", "sums"):
            raise ValueError(f"DistributedEmbedding: exchange must be 'rows' or 'sums', not {exchange!r}")
        slots = self._count("slot_num", slot_num)
        nnz = self._count("max_nnz", max_nnz)
        self._count("max_feature_num", max_feature_num)
        super().__init__(
            max_vocabulary_size_per_gpu,
            embedding_vec_size,
            use_hashtable,
            key_dtype,
            embedding_initializer,
            **kwargs,
        )
        self._combiner = combiner.lower()
        self._exchange = exchange or _better_exchange(nnz)
        self._slot_num = slots

    def call(self, inputs: tf.SparseTensor, training: bool | tf.Tensor = True) -> tf.Tensor:
        """Returns `[batch, slot_num, embedding_vec_size]` for keys of shape `[batch * slot_num, max_nnz]`.

        Raises:
          TypeError: `inputs` is not a SparseTensor, or not of `key_dtype`.
          ValueError: `inputs` is known not to have two dimensions. If that is only known when the graph runs,
            running it raises an InvalidArgumentError.
        """
        return self._look_up(inputs, training)

    def _lookup_of(self, inputs: tf.SparseTensor) -> group.Lookup:
        keys = tf.compat.v1.convert_to_tensor_or_sparse_tensor(inputs)
        if not isinstance(keys, tf.SparseTensor):
            raise TypeError(
                f"DistributedEmbedding of '{self.embedding_variable.m_var_name}' takes a SparseTensor, "
                f"not {inputs!r}"
            )
        if keys.shape.rank not in (None, 2):
            raise ValueError(
                f"DistributedEmbedding layer '{self.name}' of '{self.embedding_variable.m_var_name}' takes "
                f"keys of shape [batch * slot_num, max_nnz], not {keys.shape}"
            )
        return group.SparseLookup(
            self.embedding_variable, keys, self._combiner, slots=self._slot_num, exchange=self._exchange
        )
