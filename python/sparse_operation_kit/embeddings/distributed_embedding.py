"""DistributedEmbedding: a layer that looks up and combines a variable number of keys per slot."""

from typing import Any

import tensorflow as tf

from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.embeddings.embedding_layer import EmbeddingLayer
from sparse_operation_kit.lookup import group

# Rows cost a row for each distinct key of a step, sums at most one for each slot and rank.
KEYS_PER_RANK_FOR_SUMS = 8


def _better_exchange(max_nnz: int) -> str:
    return "sums" if max_nnz >= KEYS_PER_RANK_FOR_SUMS * communicator().size else "rows"


class DistributedEmbedding(EmbeddingLayer):
    """Looks up the keys of each slot and combines their rows to one, as `tf.nn.embedding_lookup_sparse` does.

    `layer(inputs, training=True)` takes a SparseTensor of keys with
    `dense_shape = [batch * slot_num, max_nnz]`: row `b * slot_num + s` holds the keys of slot `s` of sample
    `b`. It returns `[batch, slot_num, embedding_vec_size]`, in the layer's compute dtype. A key that stands
    twice counts twice; a row without keys gives zeros. Any batch size will do, and one may differ from the
    next.

    With `training=False` (a Python bool or a scalar bool tensor) an unseen key reads as its initial value,
    stays out of the table, and the lookup has no gradients.

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
        """Makes the layer and its variable.

        Args:
          combiner: "sum" or "mean", in either case.
          max_vocabulary_size_per_gpu: Rows on a rank; a new key beyond it is an error in training. None grows
            without bound.
          embedding_vec_size: Floats of a row.
          slot_num: Features of a sample.
          max_nnz: The most keys of a slot. The original sizes buffers by it; here nothing depends on it.
          max_feature_num: The most keys of a sample, likewise.
          use_hashtable: False takes the key for the row; keys are then in
            [0, max_vocabulary_size_per_gpu * ranks).
          key_dtype: tf.int64, tf.int32 or tf.uint32, the dtype of the input.
          embedding_initializer: As `EmbeddingVariable`'s `initializer`.
          exchange: What ranks send each other. "rows": the row of each distinct key, which the asking rank
            combines. "sums": each slot's rows as their owners combine them, for slots of many keys of which
            few are the same. Both give the same numbers. None: "sums" where
            `max_nnz >= KEYS_PER_RANK_FOR_SUMS * ranks`, else "rows".
          **kwargs: `name`, `dtype` (the compute dtype or policy) and `trainable`, as of a Keras layer.

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
          TypeError: `inputs` is no SparseTensor.
          ValueError: It is known to have another rank than 2; where only running the graph shows it, that is
            an InvalidArgumentError.
        """
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
        lookup = group.SparseLookup(
            self.embedding_variable, keys, self._combiner, slots=self._slot_num, exchange=self._exchange
        )
        return self._look_up(lookup, training)
