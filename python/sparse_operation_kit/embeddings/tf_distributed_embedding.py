"""TFDistributedEmbedding: the name under which the original has a layer for tf.distribute's strategies."""

from __future__ import annotations

from typing import Any, NoReturn

from sparse_operation_kit import compat


class TFDistributedEmbedding(compat.Layer):
    """The original's layer that spreads rows over the replicas of a `tf.distribute.Strategy`.

    It cannot be made: ranks are processes of Horovod here, and strategies are not supported. Its counterpart
    is `sok.All2AllDenseEmbedding` with `use_hashtable=False`.
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
            f"embedding_vec_size={embedding_vec_size}, use_hashtable=False), whose rows lie on the ranks of "
            f"Horovod: {vocabulary_size} rows divided by the number of ranks and rounded up are its "
            "max_vocabulary_size_per_gpu"
        )
