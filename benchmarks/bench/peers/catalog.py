"""The libraries that are compared, and what each does with a batch."""

from __future__ import annotations

import dataclasses

OURS = "sok"
OTHER = "sok_other"  # ours, as another checkout has built it
LAZY = "sok_lazy"  # ours, but training with LazyAdam where the others train with exact Adam


@dataclasses.dataclass(frozen=True)
class Library:
    """A library, its environment, and the semantics that matter for a comparison."""

    name: str
    module: str  # in bench.peers, with a class Tables
    environment: str | None  # name of a file in benchmarks/requirements, without .txt; None: our environment
    optimizers: tuple[str, ...]  # those of bench.axes.OPTIMIZERS that it has for sparse gradients
    tables: str
    training: str
    variables: tuple[tuple[str, str], ...] = ()  # environment variables of its process
    # If set, it trains with this optimizer instead of the run's, so that its results are not compared.
    trains_with: str | None = None


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
            "as sok, but with lazy_adam, to show what exact Adam costs",
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
            "dynamic: a cuckoo hash table (de.Variable) for each feature, in a session; forward is "
            "Variable.lookup of all ids, or of distinct ids (tf.unique) with sparse_segment_mean; a step has "
            "embedding_lookup_unique or embedding_lookup_sparse",
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
