"""One rank of synthetic_models.py: steps with tables over ranks, and with Horovod alone.

Rank 0 writes its results as JSON to the path in the last argument.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import sparse_operation_kit.dist_model_parallel as dmp
from bench import machine, step_profile, thread_clock
from bench.ranks_timing import interleaved
from bench.session_config import session_config
from bench.synthetic_models import MODELS, Model, Sizes, draw_ids
from sparse_operation_kit import native
from sparse_operation_kit.ranks.exchange_statistics import exchange_statistics

import horovod.tensorflow as hvd  # isort: skip - after TensorFlow's flags are set

# Between the losses of the two sides, after one step per batch.
_TOLERANCE = 1e-4
_RATE = 0.01


class Inputs:
    """This rank's share of batches that steps rotate over, and the tensors of the present one."""

    def __init__(self, flags: argparse.Namespace, model: Model, sizes: Sizes) -> None:
        rng = np.random.default_rng(flags.seed)
        share = slice(hvd.rank() * flags.batch // hvd.size(), (hvd.rank() + 1) * flags.batch // hvd.size())
        drawn = [
            (
                draw_ids(sizes, flags.batch, flags.zipf, rng)[share],
                rng.random([flags.batch, model.numbers], np.float32)[share],
                rng.integers(0, 2, [flags.batch, 1]).astype(np.float32)[share],
            )
            for _ in range(flags.batches)
        ]
        arrays = [np.stack(arrays) for arrays in zip(*drawn)]
        holders = [tf.compat.v1.placeholder(array.dtype, array.shape) for array in arrays]
        dataset = tf.data.Dataset.from_tensor_slices(tuple(holders)).repeat()
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        ids, self.numbers, self.labels = iterator.get_next()
        self.ids = tf.split(ids, sizes.hotness, axis=1)
        self._initializer, self._feed = iterator.initializer, dict(zip(holders, arrays))

    def restart(self, session: tf.compat.v1.Session) -> None:
        """The next step gets the first batch."""
        session.run(self._initializer, self._feed)


def network(rows: list[tf.Tensor], inputs: Inputs, model: Model, scope: str) -> tf.Tensor:
    """The mean loss of this rank's samples; the network's variables are in `scope`."""

    def dense(values: tf.Tensor, units: int, name: str) -> tf.Tensor:
        seed = len(name) + units
        initializer = tf.compat.v1.glorot_uniform_initializer(seed=seed)
        with tf.compat.v1.variable_scope(scope):
            kernel = tf.compat.v1.get_variable(name, [values.shape[1], units], initializer=initializer)
        return values @ kernel

    if model.pairs:
        bottom = tf.nn.relu(dense(inputs.numbers, int(rows[0].shape[1]), "bottom"))
        vectors = tf.stack([bottom, *rows], axis=1)
        count = len(rows) + 1
        products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
        below = [row * count + column for row in range(count) for column in range(row)]
        hidden = tf.concat([bottom, tf.gather(products, below, axis=1)], axis=1)
    else:
        hidden = tf.concat([*rows, inputs.numbers], axis=1)
    for number, units in enumerate(model.layers):
        hidden = tf.nn.relu(dense(hidden, units, f"hidden_{number}"))
    logits = dense(hidden, 1, "logit")
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=inputs.labels, logits=logits))


class OverRanks:
    """Tables over ranks, by DistributedEmbedding."""

    def __init__(self, inputs: Inputs, model: Model, sizes: Sizes) -> None:
        layers = [dmp.Embedding(rows, width, combiner="sum") for rows, width in sizes.shapes]
        self._layer = dmp.DistributedEmbedding(
            layers, strategy="memory_balanced", input_table_map=sizes.table_of
        )
        self.loss = network(self._layer(inputs.ids), inputs, model, "over_ranks")
        optimizer = dmp.DistributedOptimizer(tf.compat.v1.train.AdagradOptimizer(_RATE))
        self.step = optimizer.minimize(self.loss)

    def start(self, session: tf.compat.v1.Session, tables: list[np.ndarray]) -> None:
        """Sets the tables."""
        self._layer.set_weights(tables, session=session)


class Plain:
    """Every table on every rank, looked up by `embedding_lookup_sparse`; Horovod gathers gradients of rows.

    In one process Horovod does nothing.
    """

    def __init__(self, inputs: Inputs, model: Model, sizes: Sizes) -> None:
        self._tables = [
            tf.compat.v1.get_variable(f"table_{number}", [rows, width], use_resource=True)
            for number, (rows, width) in enumerate(sizes.shapes)
        ]
        rows = [
            tf.compat.v1.nn.embedding_lookup_sparse(
                [self._tables[table]], _sparse(ids, hotness), None, combiner="sum"
            )
            for table, ids, hotness in zip(sizes.table_of, inputs.ids, sizes.hotness)
        ]
        self.loss = network(rows, inputs, model, "plain")
        optimizer = tf.compat.v1.train.AdagradOptimizer(_RATE)
        variables = [*tf.compat.v1.trainable_variables("plain/"), *self._tables]
        own = optimizer.compute_gradients(self.loss, variables)
        slices = [gradient for gradient, _ in own if isinstance(gradient, tf.IndexedSlices)]
        # An allgather of row numbers and one of rows for each table.
        self.bytes_gathered = tf.add_n(
            [tf.size(gradient.indices) * (8 + 4 * gradient.values.shape[1]) for gradient in slices]
        )
        # Like hvd.DistributedOptimizer, but without its conditionals, in which the names of collectives
        # depend on what else the process has run.
        averages = [(hvd.allreduce(gradient, op=hvd.Average), variable) for gradient, variable in own]
        self.step = optimizer.apply_gradients(own if hvd.size() == 1 else averages)
        self._holders = [tf.compat.v1.placeholder(tf.float32, table.shape) for table in self._tables]
        self._assign = [
            table.assign(holder, read_value=False) for table, holder in zip(self._tables, self._holders)
        ]

    def start(self, session: tf.compat.v1.Session, tables: list[np.ndarray]) -> None:
        """Sets the tables."""
        session.run(self._assign, dict(zip(self._holders, tables)))


class NetworkAlone:
    """The network on rows that nothing looks up. It computes their gradients and trains its variables."""

    def __init__(self, inputs: Inputs, model: Model, sizes: Sizes) -> None:
        rows = [
            tf.compat.v1.get_variable(
                f"rows_{number}",
                initializer=tf.random.uniform(
                    [int(inputs.labels.shape[0]), sizes.shapes[table][1]], -0.05, 0.05
                ),
                trainable=False,
                use_resource=True,
            )
            for number, table in enumerate(sizes.table_of)
        ]
        vectors = [row.read_value() for row in rows]
        loss = network(vectors, inputs, model, "alone")
        variables = tf.compat.v1.trainable_variables("alone/")
        gradients = tf.gradients(loss, [*vectors, *variables])
        # Without these ops nothing would read the gradients of rows, and TensorFlow would not compute them.
        read = [native.horovod_ops().sok_opaque(tensor=gradient) for gradient in gradients[: len(vectors)]]
        own = gradients[len(vectors) :]
        if hvd.size() > 1:
            own = [hvd.allreduce(gradient, op=hvd.Average) for gradient in own]
        optimizer = tf.compat.v1.train.AdagradOptimizer(_RATE)
        self.step = tf.group(optimizer.apply_gradients(zip(own, variables)), *read)


def _sparse(ids: tf.Tensor, hotness: int) -> tf.SparseTensor:
    batch = int(ids.shape[0])
    indices = np.stack(np.divmod(np.arange(batch * hotness), hotness), axis=1)
    return tf.SparseTensor(tf.constant(indices, tf.int64), tf.reshape(ids, [-1]), [batch, hotness])


@dataclasses.dataclass(frozen=True)
class _Counts:
    exchanges: float  # per step
    bytes_over_ranks: float  # that this rank sends to others for its tables, per step
    bytes_gathered: float  # the same with Horovod alone: what an allgather brings the others


def main(arguments: Sequence[str]) -> None:
    """Runs one rank."""
    flags = _parse(arguments)
    before = thread_clock.threads()
    hvd.init()
    cpu_seconds = thread_clock.clock_without(thread_clock.threads() - before)
    model = MODELS[flags.model]
    sizes = Sizes.of(model, flags.scale)
    threads = max(1, (os.cpu_count() or 1) // hvd.size())
    with tf.Graph().as_default(), tf.compat.v1.Session(config=session_config(threads)) as session:
        inputs = Inputs(flags, model, sizes)
        ours, plain = OverRanks(inputs, model, sizes), Plain(inputs, model, sizes)
        alone = NetworkAlone(inputs, model, sizes)
        statistics = exchange_statistics()
        session.run(tf.compat.v1.global_variables_initializer())
        rng = np.random.default_rng(flags.seed)
        tables = [rng.uniform(-0.05, 0.05, shape).astype(np.float32) for shape in sizes.shapes]
        for side in (ours, plain):
            side.start(session, tables)
        _check(session, inputs, ours, plain, flags.batches)
        counts = _count(session, inputs, ours, plain, statistics, flags.batches)
        steps = {"over ranks": [ours.step], "plain": [plain.step], "network": [alone.step]}
        timings = interleaved(session, steps, flags.rounds, flags.calls, cpu_seconds)
        profiles = {
            name: step_profile.profile(session, targets, flags.profile)
            for name, targets in steps.items()
            if flags.profile > 0
        }
    if hvd.rank() == 0:
        result = {
            "machine": machine.describe(),
            "ranks": hvd.size(),
            "counts": dataclasses.asdict(counts),
            "timings": {name: dataclasses.asdict(timing) for name, timing in timings.items()},
            "profiles": {
                name: {kind: dataclasses.asdict(ops) for kind, ops in kinds.items()}
                for name, kinds in profiles.items()
            },
        }
        with open(flags.output, "w", encoding="utf-8") as stream:
            json.dump(result, stream)


def _check(session: tf.compat.v1.Session, inputs: Inputs, ours: OverRanks, plain: Plain, steps: int) -> None:
    """Checks that both sides have equal losses in the first steps."""
    losses = []
    for side in (ours, plain):
        inputs.restart(session)
        losses.append([session.run([side.loss, side.step])[0] for _ in range(steps)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=_TOLERANCE)


def _count(
    session: tf.compat.v1.Session, inputs: Inputs, ours: OverRanks, plain: Plain, statistics, steps: int
) -> _Counts:
    inputs.restart(session)
    before = session.run(statistics)
    for _ in range(steps):
        session.run(ours.step)
    after = session.run(statistics)
    gathered = sum(int(session.run(plain.bytes_gathered)) for _ in range(steps))
    return _Counts(
        float(after.exchanges - before.exchanges) / steps,
        float(after.bytes_sent_to_others - before.bytes_sent_to_others) / steps,
        gathered * (hvd.size() - 1) / steps,
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, kind in (
        ("model", str),
        ("scale", int),
        ("batch", int),
        ("zipf", float),
        ("batches", int),
        ("rounds", int),
        ("calls", int),
        ("seed", int),
        ("profile", int),
    ):
        parser.add_argument(f"--{name}", type=kind, required=True)
    parser.add_argument("output")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main(sys.argv[1:])
