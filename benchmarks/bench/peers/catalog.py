"""The libraries that are measured beside each other, and what each does with a batch."""

from __future__ import annotations

import dataclasses

OURS = "sok"
OTHER = "sok_other"  # ours, as another checkout has built it
LAZY = "sok_lazy"  # ours, training with LazyAdam where the others have the exact one


@dataclasses.dataclass(frozen=True)
class Library:
    """A library, where it runs, and the semantics that a comparison has to know of."""

    name: str
    module: str  # of bench.peers, with a class Tables
    environment: (
        str | None
    )  # a folder of benchmarks/requirements without its suffix; None: our own environment
    optimizers: tuple[str, ...]  # those of bench.axes.OPTIMIZERS that it has for sparse gradients
    tables: str
    training: str
    variables: tuple[tuple[str, str], ...] = ()  # that its process needs
    trains_with: str | None = None  # an optimizer instead of the others': its rows are then its own


LIBRARIES = {
    library.name: library
    for library in (
        Library(
            OURS,
            "sok_tables",
            None,
            ("lazy_adam", "adam", "adagrad", "sgd", "rowwise_adagrad"),
            "dynamic: a hash table for each feature, all looked up as one group in a session",
            "gradients of equal ids are summed, each touched row is updated once; adam moves every row",
        ),
        Library(
            OTHER,
            "sok_tables",
            None,
            ("lazy_adam", "adam", "adagrad", "sgd", "rowwise_adagrad"),
            "dynamic: as sok, built by another checkout",
            "as sok, built by another checkout",
        ),
        Library(
            LAZY,
            "sok_tables",
            None,
            ("adam",),
            "dynamic: as sok",
            "as sok, with lazy_adam: what the exact one costs beyond it",
            trains_with="lazy_adam",
        ),
        Library(
            "tensorflow",
            "tensorflow_tables",
            None,
            ("lazy_adam", "adam", "adagrad", "sgd", "rowwise_adagrad"),
            "static: a tf.Variable for each feature; tf.gather, or embedding_lookup_sparse, in a session",
            "gradients of equal ids are summed by unique and unsorted_segment_sum; sgd scatters them one by "
            "one; adam moves every row",
        ),
        Library(
            "tfra",
            "tfra_tables",
            "tfra",
            ("lazy_adam", "adagrad", "sgd"),
            "dynamic: a cuckoo hash table (de.Variable) for each feature; forward is Variable.lookup of all "
            "ids, or of tf.unique's and sparse_segment_mean; a step embedding_lookup_unique or "
            "embedding_lookup_sparse, in a session",
            "tf.compat.v1.train's optimizer in a DynamicEmbeddingOptimizer: distinct rows and slots are "
            "read, updated in temporary variables, and inserted again",
            (("TF_USE_LEGACY_KERAS", "1"),),
        ),
        Library(
            "torch",
            "torch_tables",
            "torch",
            ("lazy_adam", "adagrad", "sgd"),
            "static: an nn.EmbeddingBag(sparse=True) for each feature, eager",
            "SparseAdam and Adagrad coalesce the gradients of equal ids (sort, sum), SGD adds them one by "
            "one",
        ),
        Library(
            "fbgemm",
            "fbgemm_tables",
            "fbgemm",
            ("adagrad", "sgd", "rowwise_adagrad"),
            "static: one SplitTableBatchedEmbeddingBagsCodegen over all features, eager",
            "backward and optimizer are one kernel (exact_*): gradients of equal ids are summed, each "
            "touched row is updated once",
        ),
    )
}
