"""A model that trains on an iterator, with and without `sok.LookupPrefetch`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok

v1 = tf.compat.v1
STEPS = 12
DIMS = {"wide": 16, "odd": 3, "small": 4}
# For each feature: table, combiner, whether its ids have weights.
FEATURES = (("wide", "sum", False), ("odd", "mean", True), ("small", "sqrtn", False), ("wide", "mean", False))
NO_SAMPLES = 4  # the step that has no samples
NO_IDS = 9
OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.3),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.3),
    "lazy adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.05),
    "adam": lambda: v1.train.AdamOptimizer(0.05),
}


def batches(rank: int = 0, steps: int = STEPS, vocabulary: int = 300) -> list[dict[str, np.ndarray]]:
    """Skewed ids; most of them occur again in the next step, and some are new. Sizes differ between steps."""
    result = []
    for step in range(steps):
        rng = np.random.default_rng([rank, step])
        samples = 0 if step == NO_SAMPLES else int(rng.integers(1, 9))
        batch = {"labels": rng.normal(size=samples).astype(np.float32)}
        for feature in range(len(FEATURES)):
            lengths = rng.integers(0, 1 if step == NO_IDS else 6, samples)
            count = lengths.sum()
            keys = harness.zipf_keys(rng, count, vocabulary)
            keys = np.where(rng.random(count) < 0.1, 1000 + step, keys)
            batch.update({f"lengths{feature}": lengths, f"keys{feature}": keys})
            batch[f"weights{feature}"] = rng.uniform(0.5, 2, count).astype(np.float32)
        result.append(batch)
    return result


def iterator_of(data: Sequence[dict[str, np.ndarray]]) -> v1.data.Iterator:
    """An iterator over batches; it needs its initializer."""
    signature = {name: tf.TensorSpec([None], value.dtype) for name, value in data[0].items()}
    dataset = harness.dataset_of(lambda: iter(data), signature)
    return v1.data.make_initializable_iterator(dataset.prefetch(1))


def look_up(tables: dict[str, sok.EmbeddingVariable], batch: dict[str, tf.Tensor]) -> dict:
    """The group's outputs and the labels."""

    def bags(kind: str, feature: int) -> tf.RaggedTensor:
        # Adds ops that check the lengths, on which other ops depend.
        return tf.RaggedTensor.from_row_lengths(batch[f"{kind}{feature}"], batch[f"lengths{feature}"])

    rows = sok.group_embedding_lookup_sparse(
        [tables[table] for table, _, _ in FEATURES],
        [bags("keys", feature) for feature in range(len(FEATURES))],
        [combiner for _, combiner, _ in FEATURES],
        sp_weights=[
            bags("weights", feature) if weighted else None
            for feature, (_, _, weighted) in enumerate(FEATURES)
        ],
    )
    return {"rows": rows, "labels": batch["labels"]}


@dataclasses.dataclass
class Run:
    """The result of a training: the values of each step, and the saved tables and statistics at the end."""

    steps: list[dict]
    tables: dict[str, dict[str, np.ndarray]]
    statistics: dict[str, sok.TableStatistics]

    def assert_equal(self, other: Run) -> None:
        """Compares bit for bit."""
        for field in dataclasses.fields(self):
            np.testing.assert_equal(getattr(self, field.name), getattr(other, field.name), field.name)


def train(
    ahead: bool,
    optimizer: str,
    *,
    data: Sequence[dict[str, np.ndarray]] | None = None,
    fused: bool = True,
    policies: Callable[[str], dict] = lambda name: {},
    look_up: Callable = look_up,
    folder: str | None = None,
    save_in_between: bool = False,
) -> Run:
    """Trains to the end of the data. Several ranks need a shared `folder`."""
    data = batches() if data is None else data
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(harness.graph_and_session())
        stack.enter_context(sok.optimizers.fused_updates(fused))
        folder = folder or stack.enter_context(tempfile.TemporaryDirectory())
        tables = {name: sok.EmbeddingVariable(name, dim, **policies(name)) for name, dim in DIMS.items()}
        iterator = iterator_of(data)
        prefetch = sok.LookupPrefetch(iterator, functools.partial(look_up, tables)) if ahead else None
        outputs = prefetch.outputs if ahead else look_up(tables, iterator.get_next())
        predictions = tf.add_n([tf.reduce_sum(tf.square(rows), axis=-1) for rows in outputs["rows"]])
        loss = tf.reduce_sum(tf.square(predictions - outputs["labels"])) / harness.GLOBAL_BATCH_SIZE
        update = OPTIMIZERS[optimizer]().minimize(loss, var_list=list(tables.values()))
        statistics = sok.table_statistics(list(tables.values()))
        saver = v1.train.Saver(list(tables.values()))
        harness.initialize(session)
        session.run(iterator.initializer)
        if ahead:
            session.run(prefetch.prime)
        fetches = {
            "outputs": outputs,
            "loss": loss,
            "update": update,
            "advance": [prefetch.advance] if ahead else [],
        }
        steps = []
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                fetched = session.run(fetches)
                steps.append({"outputs": fetched["outputs"], "loss": fetched["loss"]})
                if save_in_between and len(steps) % 7 == 0:
                    saver.save(session, f"{folder}/model-{len(steps)}")
        prefix = saver.save(session, str(pathlib.Path(folder) / f"model-{'ahead' if ahead else 'plain'}"))
        return Run(steps, harness.saved_tables(prefix), session.run(statistics))
