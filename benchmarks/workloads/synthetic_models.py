"""Steps of distributed-embeddings' synthetic models, with tables over ranks and with Horovod alone.

"tiny" is that of its own benchmark; "dlrm" has Criteo's features. Each is compared with steps of the dense
network on constant rows, which looks up nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench import flags, ranks
from bench.report import Result


class Tables(NamedTuple):
    """Tables of one size."""

    count: int
    hotness: tuple[int, ...]  # ids per sample of each input; each table has an input for each of these
    rows: int  # of a table, before scaling
    width: int


class Model(NamedTuple):
    """Tables, and a network behind them."""

    tables: tuple[Tables, ...]
    numbers: int  # numerical features of a sample
    layers: tuple[int, ...]  # units of the network, without the last, which has one
    # Whether the network gets dot products of all pairs of rows, as in DLRM, or the rows side by side.
    pairs: bool = False


_DLRM_ROWS = [int(rows) for rows in np.geomspace(40_000_000, 4, 26)]

MODELS = {
    "tiny": Model(
        (
            Tables(1, (1, 10), 10_000, 8),
            Tables(1, (1, 10), 1_000_000, 16),
            Tables(1, (1, 10), 25_000_000, 16),
            Tables(1, (1,), 25_000_000, 16),
            Tables(16, (1,), 10, 8),
            Tables(10, (1,), 1000, 8),
            Tables(4, (1,), 10_000, 8),
            Tables(2, (1,), 100_000, 16),
            Tables(19, (1,), 1_000_000, 16),
        ),
        numbers=10,
        layers=(256, 128),
    ),
    "dlrm": Model(
        tuple(Tables(1, (1,), rows, 16) for rows in _DLRM_ROWS),
        numbers=13,
        layers=(256, 128),
        pairs=True,
    ),
}


class Sizes(NamedTuple):
    """A model's tables and inputs, one by one, with scaled rows."""

    shapes: list[tuple[int, int]]  # (rows, width) of each table
    table_of: list[int]  # the table of each input
    hotness: list[int]  # ids per sample of each input

    @classmethod
    def of(cls, model: Model, scale: int) -> Sizes:
        """The sizes of a model whose tables have a `scale`-th of their rows, but ten at least."""
        sizes = cls([], [], [])
        for tables in model.tables:
            for _ in range(tables.count):
                sizes.table_of.extend([len(sizes.shapes)] * len(tables.hotness))
                sizes.hotness.extend(tables.hotness)
                sizes.shapes.append((max(tables.rows // scale, min(tables.rows, 10)), tables.width))
        return sizes


FLAGS = {
    **ranks.FLAGS,
    **dict(ranks=(1, 2, 4), batch=4096, zipf=1.05),
    "models": flags.Flag(flags.one_of("model", tuple(MODELS)), ",".join(MODELS), tuple(MODELS)),
    "scale": flags.Flag(flags.number(), "tables have so many times fewer rows than the originals", 100),
}
_RATE = 0.01
# Between the losses of the two sides, after one step per batch.
_TOLERANCE = 1e-4


def measure_rank(rank: ranks.Rank) -> list[Result]:
    """Measures steps of both sides and of the network."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    point, session, model = rank.point, rank.session, MODELS[rank.point.models]
    sizes = Sizes.of(model, point.scale)
    inputs = _Inputs(rank, model, sizes)
    ours, plain = _over_ranks(inputs, model, sizes), _plain(inputs, model, sizes)
    alone = _network_alone(inputs, model, sizes)
    session.run(tf.compat.v1.global_variables_initializer())
    rng = np.random.default_rng(point.seed)
    tables = [rng.uniform(-0.05, 0.05, shape).astype(np.float32) for shape in sizes.shapes]
    losses = []
    for side in (ours, plain):
        side.fill(session, tables)
        inputs.restart(session)
        losses.append([session.run([side.loss, side.step])[0] for _ in range(point.batches)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=_TOLERANCE)
    exchanged = rank.exchanged([ours.step], inputs.restart)
    gathered = sum(int(session.run(plain.bytes_gathered)) for _ in range(point.batches))
    counts = {
        "exchanges": exchanged["exchanges"],
        "bytes": exchanged["bytes_sent_to_others"],
        "bytes, plain": gathered * (hvd.size() - 1) / point.batches,
    }
    steps = {"over ranks": [ours.step], "plain": [plain.step], "network": [alone]}
    question = {"model": point.models, "ranks": point.ranks}
    return [Result(question, rank.measure(steps), "over ranks", counts)]


class _Inputs:
    """This rank's share of batches that steps rotate over, and the tensors of the present one."""

    def __init__(self, rank: ranks.Rank, model: Model, sizes: Sizes) -> None:
        import tensorflow as tf

        point, rng = rank.point, np.random.default_rng(rank.point.seed)
        share = slice(rank.number * point.batch // rank.size, (rank.number + 1) * point.batch // rank.size)
        drawn = [
            (
                _draw_ids(sizes, point.batch, point.zipf, rng)[share],
                rng.random([point.batch, model.numbers], np.float32)[share],
                rng.integers(0, 2, [point.batch, 1]).astype(np.float32)[share],
            )
            for _ in range(point.batches)
        ]
        arrays = [np.stack(arrays) for arrays in zip(*drawn)]
        holders = [tf.compat.v1.placeholder(array.dtype, array.shape) for array in arrays]
        dataset = tf.data.Dataset.from_tensor_slices(tuple(holders)).repeat()
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        ids, self.numbers, self.labels = iterator.get_next()
        self.ids = tf.split(ids, sizes.hotness, axis=1)
        self._initializer, self._feed = iterator.initializer, dict(zip(holders, arrays))

    def restart(self, session) -> None:
        """The next step gets the first batch."""
        session.run(self._initializer, self._feed)


def _network(rows: Sequence, inputs: _Inputs, model: Model, scope: str):
    """The mean loss of this rank's samples; the network's variables are in `scope`."""
    import tensorflow as tf

    def dense(values, units: int, name: str):
        initializer = tf.compat.v1.glorot_uniform_initializer(seed=len(name) + units)
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


def _over_ranks(inputs: _Inputs, model: Model, sizes: Sizes) -> argparse.Namespace:
    """Tables over ranks, by DistributedEmbedding."""
    import tensorflow as tf

    import sparse_operation_kit.dist_model_parallel as dmp

    layers = [dmp.Embedding(rows, width, combiner="sum") for rows, width in sizes.shapes]
    layer = dmp.DistributedEmbedding(layers, strategy="memory_balanced", input_table_map=sizes.table_of)
    loss = _network(layer(inputs.ids), inputs, model, "over_ranks")
    step = dmp.DistributedOptimizer(tf.compat.v1.train.AdagradOptimizer(_RATE)).minimize(loss)
    return argparse.Namespace(
        loss=loss, step=step, fill=lambda session, tables: layer.set_weights(tables, session=session)
    )


def _plain(inputs: _Inputs, model: Model, sizes: Sizes) -> argparse.Namespace:
    """Every table on every rank, looked up by `embedding_lookup_sparse`; Horovod gathers gradients of rows.

    In one process Horovod does nothing.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    v1 = tf.compat.v1
    variables = [
        v1.get_variable(f"table_{number}", shape, use_resource=True)
        for number, shape in enumerate(sizes.shapes)
    ]

    def look_up(table: int, ids, hotness: int):
        batch = int(ids.shape[0])
        indices = np.stack(np.divmod(np.arange(batch * hotness), hotness), axis=1)
        bags = tf.SparseTensor(tf.constant(indices, tf.int64), tf.reshape(ids, [-1]), [batch, hotness])
        return v1.nn.embedding_lookup_sparse([variables[table]], bags, None, combiner="sum")

    rows = [look_up(*of_input) for of_input in zip(sizes.table_of, inputs.ids, sizes.hotness)]
    loss = _network(rows, inputs, model, "plain")
    optimizer = v1.train.AdagradOptimizer(_RATE)
    own = optimizer.compute_gradients(loss, [*v1.trainable_variables("plain/"), *variables])
    slices = [gradient for gradient, _ in own if isinstance(gradient, tf.IndexedSlices)]
    # An allgather of row numbers and one of rows for each table.
    gathered = [tf.size(gradient.indices) * (8 + 4 * gradient.values.shape[1]) for gradient in slices]
    # Like hvd.DistributedOptimizer, but without its conditionals, in which the names of collectives depend on
    # what else the process has run.
    averages = [(hvd.allreduce(gradient, op=hvd.Average), variable) for gradient, variable in own]
    holders = [v1.placeholder(tf.float32, variable.shape) for variable in variables]
    assign = [variable.assign(holder, read_value=False) for variable, holder in zip(variables, holders)]
    return argparse.Namespace(
        loss=loss,
        step=optimizer.apply_gradients(own if hvd.size() == 1 else averages),
        bytes_gathered=tf.add_n(gathered),
        fill=lambda session, tables: session.run(assign, dict(zip(holders, tables))),
    )


def _network_alone(inputs: _Inputs, model: Model, sizes: Sizes):
    """A step of the network on constant rows. It computes their gradients and trains its variables."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    from sparse_operation_kit import native

    v1, batch = tf.compat.v1, int(inputs.labels.shape[0])
    vectors = [
        v1.get_variable(
            f"rows_{number}",
            initializer=tf.random.uniform([batch, sizes.shapes[table][1]], -0.05, 0.05),
            trainable=False,
            use_resource=True,
        ).read_value()
        for number, table in enumerate(sizes.table_of)
    ]
    loss = _network(vectors, inputs, model, "alone")
    variables = v1.trainable_variables("alone/")
    gradients = tf.gradients(loss, [*vectors, *variables])
    # Without these ops nothing would read the gradients of rows, and TensorFlow would not compute them.
    read = [native.horovod_ops().sok_opaque(tensor=gradient) for gradient in gradients[: len(vectors)]]
    own = gradients[len(vectors) :]
    if hvd.size() > 1:
        own = [hvd.allreduce(gradient, op=hvd.Average) for gradient in own]
    return tf.group(v1.train.AdagradOptimizer(_RATE).apply_gradients(zip(own, variables)), *read)


def _draw_ids(sizes: Sizes, batch: int, zipf: float, rng: np.random.Generator) -> np.ndarray:
    """Ids of all inputs side by side, int64 [batch, sum of hotness]; frequencies follow Zipf's law."""
    columns = []
    for table, hotness in zip(sizes.table_of, sizes.hotness):
        rows = sizes.shapes[table][0]
        # The inverse of the distribution function of a density proportional to x^-zipf on [1, rows + 1).
        power = 1 - zipf
        uniform = rng.random([batch, hotness])
        if power == 0:
            drawn = (rows + 1.0) ** uniform
        else:
            drawn = (uniform * ((rows + 1) ** power - 1) + 1) ** (1 / power)
        columns.append(np.minimum(drawn.astype(np.int64) - 1, rows - 1))
    return np.concatenate(columns, axis=1)
