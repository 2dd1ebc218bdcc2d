"""A model with a DistributedEmbedding, and the same model with plain tables on the whole batch."""

import dataclasses

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import dist_model_parallel as dmp
from sparse_operation_kit.dist_model_parallel.keras import keras
from sparse_operation_kit.ranks.communicator import communicator

# TensorFlow 1.15 executes eagerly, and makes resource variables, only if it is asked to.
tf.compat.v1.enable_v2_behavior()

train = tf.compat.v1.train
BATCH = 12
# Where each rank's part of the batch begins and ends, by number of ranks; parts differ, and may be empty.
BOUNDS = {1: [0, 12], 2: [0, 7, 12], 3: [0, 5, 5, 12], 4: [0, 1, 6, 6, 12]}
OPTIMIZERS = {
    "lazy adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.05),
    "sgd": lambda: train.GradientDescentOptimizer(0.02),
    "adagrad": lambda: train.AdagradOptimizer(0.2),
    "adam": lambda: train.AdamOptimizer(0.05),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
      tables: (rows, columns, combiner) of each.
      inputs: (table, kind of its ids: a hotness, "ragged" or "sparse") of each.
      options: arguments of the DistributedEmbedding.
    """

    tables: tuple
    inputs: tuple
    options: dict


_MANY = (
    (11, 4, "sum"),
    (30, 4, "sum"),
    (7, 6, "mean"),
    (50, 4, None),
    (9, 5, "mean"),
    (20, 4, "sum"),
    (3, 4, None),
)
_OF_MANY = (
    (0, 1),
    (1, 3),
    (2, "ragged"),
    (3, 2),
    (4, "sparse"),
    (5, "ragged"),
    (6, 1),
    (1, "sparse"),
    (3, "ragged"),
)
# Tables are cut by columns, cut by rows, and replicated.
_ALL_WAYS = {"column_slice_threshold": 60, "row_slice_threshold": 120, "data_parallel_threshold": 30}

CASES = {
    "basic": Case(_MANY, _OF_MANY, {}),
    "balanced": Case(_MANY, _OF_MANY, {"strategy": "memory_balanced", "column_slice_threshold": 40}),
    "optimized": Case(_MANY, _OF_MANY, {"strategy": "memory_optimized", **_ALL_WAYS}),
    "one table": Case(((13, 7, None),), ((0, 3), (0, "ragged")), {}),
    "rows": Case(
        ((10, 3, "mean"), (2, 2, "sum")),
        ((0, "ragged"), (1, "sparse")),
        {"row_slice_threshold": 1},
    ),
    "worker order": Case(
        # The last tables are entirely in one variable.
        (*_MANY, (12, 4, "sum"), (13, 4, "sum"), (10, 4, "sum")),
        (*_OF_MANY[:8], (3, 4), (7, 2), (8, "ragged"), (9, 1)),
        {"strategy": "memory_balanced", **_ALL_WAYS, "dp_input": False},
    ),
    "replicas": Case(_MANY[:3], _OF_MANY[:3], {"data_parallel_threshold": 1000}),
    # With and without combiners, sum and mean, of both kinds.
    "rows and replicas": Case(
        ((11, 4, "sum"), (30, 4, "sum"), (7, 6, "mean"), (50, 4, None), (3, 4, None), (25, 5, "mean")),
        ((0, 1), (1, 3), (2, "ragged"), (3, 2), (4, 1), (5, "sparse"), (0, "sparse"), (3, "ragged")),
        {"row_slice_threshold": 120, "data_parallel_threshold": 50},
    ),
}


def layer_of(case, **options):
    """The case's layer."""
    layers = [
        Layer(rows, columns, combiner, f"t{i}") for i, (rows, columns, combiner) in enumerate(case.tables)
    ]
    table_map = [table for table, _ in case.inputs]
    return dmp.DistributedEmbedding(layers, input_table_map=table_map, **{**case.options, **options})


class Layer(keras.layers.Embedding):
    """Keras' embedding layer with a combiner."""

    def __init__(self, rows, columns, combiner, name):
        super().__init__(rows, columns, name=name)
        self.combiner = combiner


def batch(case, step):
    """The ids of all inputs for the whole batch: arrays, and lists of arrays for ragged and sparse inputs."""
    rng = np.random.default_rng(step)
    inputs = []
    for table, kind in case.inputs:
        rows = case.tables[table][0]
        hotness = [kind] * BATCH if isinstance(kind, int) else rng.integers(0, 5, BATCH)
        # A few ids are most of the occurrences.
        bags = [np.minimum(rng.zipf(1.5, n) - 1, rows - 1).astype(np.int64) for n in hotness]
        inputs.append(np.stack(bags) if isinstance(kind, int) else bags)
    return inputs


def labels(step):
    """A label for each sample of a batch."""
    return np.random.default_rng([step, 1]).normal(size=BATCH).astype(np.float32)


def as_tensors(case, numbers, inputs):
    """The inputs of these numbers as tensors of their kinds."""
    tensors = []
    for number, ids in zip_equal(numbers, inputs):
        kind = case.inputs[number][1]
        if isinstance(kind, int):
            tensors.append(tf.constant(ids, tf.int64))
            continue
        values = np.concatenate([*ids, np.zeros(0, np.int64)])
        ragged = tf.RaggedTensor.from_row_lengths(values, np.array([len(bag) for bag in ids], np.int64))
        tensors.append(ragged if kind == "ragged" else ragged.to_sparse())
    return tensors


class Feeds:
    """Placeholders for the inputs and labels of a case, and their values."""

    def __init__(self, case, numbers=None):
        numbers = range(len(case.inputs)) if numbers is None else numbers
        self._kinds = [case.inputs[number][1] for number in numbers]
        self.inputs = []
        for kind in self._kinds:
            if isinstance(kind, int):
                self.inputs.append(tf.compat.v1.placeholder(tf.int64, [None, kind]))
            elif kind == "ragged":
                self.inputs.append(tf.compat.v1.ragged.placeholder(tf.int64, 1, []))
            else:
                self.inputs.append(tf.compat.v1.sparse_placeholder(tf.int64, [None, None]))
        self.labels = tf.compat.v1.placeholder(tf.float32, [None])

    def values(self, inputs, of_labels):
        fed = {self.labels: of_labels}
        for kind, place, ids in zip_equal(self._kinds, self.inputs, inputs):
            if isinstance(kind, int):
                fed[place] = np.asarray(ids).reshape(-1, kind)
                continue
            values = np.concatenate([*ids, np.zeros(0, np.int64)])
            lengths = np.array([len(bag) for bag in ids], np.int64)
            if kind == "ragged":
                splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
                fed[place] = tf.compat.v1.ragged.RaggedTensorValue(values, splits)
            else:
                rows = np.repeat(np.arange(len(ids)), lengths)
                columns = np.concatenate([*(np.arange(n) for n in lengths), np.zeros(0)])
                indices = np.stack([rows, columns], axis=1).astype(np.int64)
                fed[place] = tf.compat.v1.SparseTensorValue(indices, values, [len(ids), max([0, *lengths])])
        return fed


def kernels(case):
    """Initial values of the model's other variables: a vector for each input."""
    rng = np.random.default_rng(5)
    return [rng.normal(size=case.tables[table][1]).astype(np.float32) for table, _ in case.inputs]


def loss_of(outputs, variables, of_labels, scale):
    """The squared errors, added up and multiplied by `scale`."""
    logits = tf.zeros_like(of_labels)
    for output, kernel in zip_equal(outputs, variables):
        product = tf.reduce_sum(output * kernel, axis=-1)
        while not isinstance(product, tf.RaggedTensor) and product.shape.rank > 1:
            product = tf.reduce_sum(product, axis=-1)
        logits += tf.reduce_sum(product, axis=1) if isinstance(product, tf.RaggedTensor) else product
    return tf.reduce_sum(tf.square(logits - of_labels)) * scale


def plain_output(table, ids, combiner):
    """The output of a plain table."""
    if combiner is None:
        return tf.ragged.map_flat_values(tf.nn.embedding_lookup, table, ids)
    if isinstance(ids, tf.Tensor):
        ids = tf.RaggedTensor.from_tensor(ids)
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_sparse()
    output = tf.nn.embedding_lookup_sparse(table, ids, None, combiner=combiner)
    # It ends with the last bag that has ids.
    return tf.pad(output, [[0, tf.cast(ids.dense_shape[0], tf.int32) - tf.shape(output)[0]], [0, 0]])


def plain_training(case, optimizers, tables, steps):
    """By optimizer's name, (outputs of step 0, tables, kernels, losses) of plain tables and whole batches."""
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        feeds = Feeds(case)
        variables = [tf.Variable(table) for table in tables]
        others = [tf.Variable(kernel) for kernel in kernels(case)]
        outputs = [
            plain_output(variables[table], ids, case.tables[table][2])
            for (table, _), ids in zip_equal(case.inputs, feeds.inputs)
        ]
        loss = loss_of(outputs, others, feeds.labels, 1.0 / BATCH)
        gradients = tf.gradients(loss, [*variables, *others])
        updates = {
            name: OPTIMIZERS[name]().apply_gradients(zip_equal(gradients, [*variables, *others]))
            for name in optimizers
        }
        start = tf.compat.v1.global_variables_initializer()
        results = {}
        for name, update in updates.items():
            session.run(start)
            first = session.run(outputs, feeds.values(batch(case, 0), labels(0)))
            losses = _losses(session, loss, update, [feeds.values(*_whole(case, i)) for i in range(steps)])
            first = [_as_lists(output) for output in first]
            results[name] = (first, *session.run([variables, others]), losses)
        return results


def _whole(case, step):
    return batch(case, step), labels(step)


def _losses(session, loss, update, fed):
    """The loss of each step."""
    return [session.run([loss, update], values)[0] for values in fed]


class Part:
    """A rank's part of the batches of a case.

    Attributes:
      inputs: the numbers of the inputs that the rank takes.
    """

    def __init__(self, case, layer):
        self._case = case
        ranks = communicator()
        if layer.dp_input:
            self.inputs = list(range(len(case.inputs)))
            self._bounds = BOUNDS[ranks.size][ranks.rank : ranks.rank + 2]
        else:
            self.inputs = layer.strategy.input_ids_list[ranks.rank]
            part = BATCH // ranks.size
            self._bounds = [ranks.rank * part, (ranks.rank + 1) * part]
        self._of_samples = layer.dp_input

    def ids(self, step):
        """The ids of the rank's inputs."""
        inputs = batch(self._case, step)
        return [self.of_samples(inputs[i]) if self._of_samples else inputs[i] for i in self.inputs]

    def labels(self, step):
        """The labels of the rank's samples."""
        return self.of_samples(labels(step))

    def of_samples(self, values):
        """The values of the rank's samples."""
        return values[slice(*self._bounds)]


def trained(case, optimizers, steps):
    """By name of an optimizer, what a rank has after training anew in a session: a dict of arrays."""
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        layer = layer_of(case)
        part = Part(case, layer)
        feeds = Feeds(case, part.inputs)
        others = [tf.Variable(kernel, name="kernel") for kernel in kernels(case)]
        outputs = layer(feeds.inputs)
        loss = loss_of(outputs, others, feeds.labels, communicator().size / BATCH)
        updates = _updates(optimizers, loss, [*layer.trainable_variables, *others])
        mean_loss = communicator().allreduce(loss, True, "loss")
        start = tf.compat.v1.global_variables_initializer()
        session.graph.finalize()
        fed = [feeds.values(part.ids(i), part.labels(i)) for i in range(steps)]
        results = {}
        for name, update in updates.items():
            session.run(start)
            initial = layer.get_weights(all_ranks=True)
            first = session.run(outputs, fed[0])
            losses = _losses(session, mean_loss, update, fed)
            results[name] = {
                "samples": part.of_samples(list(range(BATCH))),
                "first": [_as_lists(output) for output in first],
                "initial": initial,
                "tables": layer.get_weights(all_ranks=True),
                "kernels": session.run(others),
                "losses": losses,
            }
        return results


def _updates(names, loss, variables):
    """By name of an optimizer, the op of its step."""
    optimizers = {name: dmp.DistributedOptimizer(OPTIMIZERS[name]()) for name in names}
    if len(optimizers) == 1:
        return {name: one.minimize(loss, var_list=variables) for name, one in optimizers.items()}
    # Making gradients takes as long as the steps of an optimizer.
    pairs = list(zip_equal(tf.gradients(loss, variables), variables))
    return {name: one.apply_gradients(one.combine_gradients(pairs)) for name, one in optimizers.items()}


_SPECS = {
    "ragged": tf.RaggedTensorSpec([None, None], tf.int64),
    "sparse": tf.SparseTensorSpec([None, None], tf.int64),
}


def trained_in_function(case, optimizer_name, steps):
    """What a rank has after training with tf.function and a tape."""
    layer = layer_of(case)
    part = Part(case, layer)
    others = [tf.Variable(kernel, name="kernel") for kernel in kernels(case)]
    optimizer = OPTIMIZERS[optimizer_name]()

    # Tracing for each batch's shapes would take longer than the steps.
    kinds = [case.inputs[number][1] for number in part.inputs]
    specs = [_SPECS.get(kind) or tf.TensorSpec([None, kind], tf.int64) for kind in kinds]

    # AutoGraph takes half of the time; up to two ranks show that it does not matter.
    @tf.function(input_signature=[specs, tf.TensorSpec([None])], autograph=communicator().size <= 2)
    def step(inputs, of_labels):
        with tf.GradientTape() as tape:
            outputs = layer(inputs)
            loss = loss_of(outputs, others, of_labels, communicator().size / BATCH)
        variables = [*layer.trainable_variables, *others]
        gradients = dmp.DistributedGradientTape(tape).gradient(loss, variables)
        optimizer.apply_gradients(zip_equal(gradients, variables))
        return outputs, communicator().allreduce(loss, True, "loss")

    layer.build()
    initial = layer.get_weights(all_ranks=True)
    of_steps = [
        step(as_tensors(case, part.inputs, part.ids(i)), tf.constant(part.labels(i))) for i in range(steps)
    ]
    return {
        "samples": part.of_samples(list(range(BATCH))),
        "first": [_as_lists(output) for output in of_steps[0][0]],
        "initial": initial,
        "tables": layer.get_weights(all_ranks=True),
        "kernels": [other.numpy() for other in others],
        "losses": [float(loss) for _, loss in of_steps],
    }


def _as_lists(output):
    """An output as a list of arrays."""
    is_ragged = isinstance(output, (tf.RaggedTensor, tf.compat.v1.ragged.RaggedTensorValue))
    return [np.array(row) for row in (output.to_list() if is_ragged else output)]
