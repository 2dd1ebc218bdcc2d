"""TFDistributedEmbedding: a placeholder for the original SOK's layer for tf.distribute strategies."""

from __future__ import annotations

from typing import Any, NoReturn

from sparse_operation_kit import compat


class TFDistributedEmbedding(compat.Layer):
    """The original SOK's layer that shards rows over the replicas of a `tf.distribute.Strategy`.

    It cannot be created: ranks are Horovod processes here, and strategies are not supported. Use
    `sok.All2AllDenseEmbedding` with `use_hashtable=False` instead.
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding_vec_size: int,
        initializer: Any = "GlorotNormal",
        comm_options: Any = None,
        **kwargs: Any,
    ) -> NoReturn:
        """Raises RuntimeError."""
        del initializer, comm_options, kwargs
        raise RuntimeError(
            "TFDistributedEmbedding needs a tf.distribute.Strategy, which is not supported. Use "
            "sok.All2AllDenseEmbedding(max_vocabulary_size_per_gpu=..., slot_num=..., nnz_per_slot=..., "
            f"embedding_vec_size={embedding_vec_size}, use_hashtable=False), which shards rows over the "
            f"Horovod ranks. Set max_vocabulary_size_per_gpu to {vocabulary_size} divided by the number of "
            "ranks, rounded up"
        )
