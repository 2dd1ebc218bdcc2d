"""Tables in a TensorFlow graph with a session: ours, and TensorFlow's variables."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bench.jobs import Batch, Job
from bench.machine import COPY_BYTES
from bench.sides import LEARNING_RATE, Side
from bench.timing import Contender, sample_after

v1 = tf.compat.v1


class FeatureTensors(NamedTuple):
    """One feature's ids in the current step, in two layouts."""

    ids: tf.Tensor  # int64 [ids]
    sparse: tf.SparseTensor  # the same ids, one row for each bag


class RotatingBatches:
    """An endless rotation over a few batches; every session.run that uses `features` takes the next one.

    It is a `tf.data` pipeline of ready tensors in the graph, so that ids are neither fed nor copied.

    Args:
      batches: The batches.
      constants: Arrays that each step gets along with its batch, such as gradients of outputs. Unlike
        variables, they need no op to read them.
      on_gpu: Whether the constants are on the GPU, as gradients are. Batches come from the host.
    """

    def __init__(
        self, batches: list[Batch], constants: Sequence[np.ndarray] = (), on_gpu: bool = False
    ) -> None:
        arrays = [
            [array for bags in batch for array in (bags.ids, bags.sparse_indices())] for batch in batches
        ]
        self._feeds = {}
        datasets = [self._dataset(batch_arrays) for batch_arrays in arrays]
        rotation = functools.reduce(lambda before, after: before.concatenate(after), datasets).repeat()
        from_pipeline = bool(constants) and not on_gpu
        if from_pipeline:
            rotation = tf.data.Dataset.zip((rotation, self._dataset(constants).repeat()))
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        if hasattr(options, "autotune"):
            options.autotune.enabled = False
        else:  # TensorFlow 1.15
            options.experimental_optimization.autotune = False
        self.iterator = v1.data.make_initializable_iterator(rotation.with_options(options))
        self._bags = batches[0][0].offsets.size - 1
        self._longest = max(feature.longest() for batch in batches for feature in batch)
        drawn = self.iterator.get_next()
        self.tensors, drawn_constants = drawn if from_pipeline else (drawn, ())
        self.constants = list(drawn_constants) or [tf.constant(array) for array in constants]
        self.features = self.features_of(self.tensors)
        self.next_batch = tf.group(*self.tensors, *self.constants)

    def _dataset(self, arrays: Sequence[np.ndarray]) -> tf.data.Dataset:
        """A dataset of one element, the arrays, which `restart` feeds."""
        holders = [v1.placeholder(array.dtype, array.shape) for array in arrays]
        self._feeds.update(zip(holders, arrays))
        return tf.data.Dataset.from_tensors(tuple(holders))

    def features_of(self, tensors: Sequence[tf.Tensor]) -> list[FeatureTensors]:
        """The features of a batch from `iterator`."""
        shape = tf.constant([self._bags, self._longest], tf.int64)
        return [
            FeatureTensors(ids, tf.SparseTensor(indices, ids, shape))
            for ids, indices in zip(tensors[::2], tensors[1::2])
        ]

    def restart(self, session: v1.Session) -> None:
        """Restarts with the first batch. Must be called before the first use."""
        session.run(self.iterator.initializer, feed_dict=self._feeds)


class Targets(NamedTuple):
    """The ops of one lookup: `lookup` in training, `forward` outside of training, and a whole `step`."""

    lookup: Sequence[tf.Operation]
    forward: Sequence[tf.Operation]
    step: Sequence[tf.Operation]
    outputs: Sequence[tf.Tensor]  # of the lookup in training, float32 [bags, dim] for each feature


def consumed(outputs: Sequence[tf.Tensor]) -> tf.Operation:
    """An op that takes the outputs without copying them.

    A tf.group would not do: TensorFlow's graph optimizer removes lookups that have no effect but their
    outputs.
    """
    return tf.raw_ops.IdentityN(input=list(outputs))[0].op


def session_config(threads: int, on_gpu: bool = False) -> v1.ConfigProto:
    """A configuration with as many intra-op and inter-op threads, without Grappler's arithmetic optimization.

    The optimization makes embedding_lookup_sparse read the variable instead of gathering rows. Once an
    optimizer has scattered into the variable, the read copies it whole, which is ten times slower. We compare
    with the faster form.

    Without `on_gpu`, TensorFlow sees no GPU.
    """
    config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    if not on_gpu:
        config.device_count["GPU"] = 0
    # Otherwise TensorFlow takes the memory that our tables need.
    config.gpu_options.allow_growth = on_gpu
    rewrites = config.graph_options.rewrite_options
    rewrites.arithmetic_optimization = type(rewrites).OFF
    return config


def make_optimizer(name: str) -> v1.train.Optimizer:
    """Makes an optimizer, which accepts TensorFlow's variables and ours.

    On a `tf.Variable`, all of them run TensorFlow's own ops. `lazy_adam` and `rowwise_adagrad` sum the
    gradients of equal ids (unique, unsorted_segment_sum), then gather, compute and scatter the touched rows.
    `adam` moves every row. `adagrad` and `sgd` have kernels that update the touched rows.
    """
    # Imported here, because tfra's environment has not this library.
    import sparse_operation_kit as sok
    from sparse_operation_kit.tf.keras.optimizers import LazyAdamOptimizer

    train = v1.train
    makers = dict(
        adam=train.AdamOptimizer, adagrad=train.AdagradOptimizer, sgd=train.GradientDescentOptimizer
    )
    makers.update(lazy_adam=LazyAdamOptimizer, rowwise_adagrad=sok.optimizers.RowWiseAdagrad)
    return makers[name](LEARNING_RATE)


def group_lookup(
    variables: Sequence[tf.Variable], features: Sequence[FeatureTensors], hotness: int, **options: object
) -> list[tf.Tensor]:
    """Looks up all features in one group of ours: rows of single ids, or means of bags."""
    from sparse_operation_kit.lookup import group

    pairs = zip(variables, features)
    if hotness == 1:
        return group.lookup_group([group.DenseLookup(table, one.ids) for table, one in pairs], **options)
    return group.lookup_group(
        [group.SparseLookup(table, one.sparse, "mean") for table, one in pairs], **options
    )


def targets_of(
    outputs: Sequence[tf.Tensor],
    forward: Sequence[tf.Tensor],
    variables: Sequence[tf.Variable],
    gradients: Sequence[tf.Tensor],
    optimizer: v1.train.Optimizer,
) -> Targets:
    """The targets of lookups, with a step that trains the variables with `gradients` of the outputs."""
    slices = tf.gradients(list(outputs), list(variables), grad_ys=list(gradients))
    update = optimizer.apply_gradients(zip(slices, variables))
    # The step includes `lookup`: the gradients are given, so that the update alone would not need the lookup,
    # and TensorFlow would not run it.
    lookup = consumed(outputs)
    return Targets([lookup], [consumed(forward)], [lookup, update], outputs)


class SessionSide(Side):
    """Tables in a graph with one session; batches rotate inside the graph.

    Args:
      job: The job.
      on_gpu: Whether tables and gradients are on the GPU.
      plainly: Whether calls are those of `session.run` instead of `session.make_callable`, which takes less
        time.
    """

    def __init__(self, job: Job, on_gpu: bool = False, plainly: bool = False) -> None:
        super().__init__(job)
        self._plainly = plainly
        with tf.Graph().as_default() as graph:
            self.session = v1.Session(graph=graph, config=session_config(job.threads, on_gpu))
            self._prepare()
            gradients = [job.gradients(feature) for feature in range(job.features)]
            self._rotation = RotatingBatches(job.read_ids(), gradients, on_gpu)
            self._targets = self._make_targets(self._rotation.features, self._rotation.constants)
            self._copied = v1.get_variable(
                "copied",
                [COPY_BYTES // 4 if on_gpu else 1],
                initializer=v1.zeros_initializer,
                trainable=False,
            )
            self._ops = {
                "run": [self._rotation.next_batch],
                "device_copy": [tf.raw_ops.DeepCopy(x=self._copied).op],
            }
            self.session.run(v1.global_variables_initializer())
            for feature in range(job.features):
                self._fill(feature, job.row_values(feature))
            graph.finalize()
        self._rotation.restart(self.session)

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Makes the tables. The graph is the default one; `session` runs it."""

    @abc.abstractmethod
    def _make_targets(self, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor]) -> Targets:
        """Makes lookups, and steps that train with `gradients` of the outputs."""

    @abc.abstractmethod
    def _fill(self, feature: int, rows: np.ndarray) -> None:
        """Fills a feature's table."""

    def call(self, what: str) -> Callable[[], object]:
        """See Side. "lookup" is one in training, "run" takes a batch and does nothing with it."""
        ops = list(self._ops[what] if what in self._ops else getattr(self._targets, what))
        return (lambda: self.session.run(ops)) if self._plainly else self.session.make_callable(ops)

    def contender(self, what: str) -> Contender:
        """See Side."""
        if what != "run":
            return super().contender(what)
        step, run = self.call("step"), self.call("run")
        # Measured after a step, which leaves little of TensorFlow in the caches: each step starts like that.
        return lambda calls: sample_after(step, run, calls)

    def outputs(self) -> list[np.ndarray]:
        """See Side."""
        self._rotation.restart(self.session)
        return self.session.run(list(self._targets.outputs))

    def train(self) -> None:
        """See Side."""
        self._rotation.restart(self.session)
        for _ in range(self.job.batches):
            self.session.run(list(self._targets.step))


class SokSide(SessionSide):
    """Our hash tables, all looked up as one group."""

    def _prepare(self) -> None:
        import sparse_operation_kit as sok

        job = self.job
        self.session.run(sok.Init(global_batch_size=job.batch, seed=job.seed))
        # Another checkout may be older than the argument.
        kind = {} if job.row_dtype == "float32" else {"dtype": tf.as_dtype(job.row_dtype)}
        self._tables = [
            sok.EmbeddingVariable(f"sok_{feature}", job.dim, **kind) for feature in range(job.features)
        ]
        self._rows = v1.placeholder(tf.float32, [job.rows, job.dim])
        saver = sok.Saver()
        self._assign = [saver.load_embedding_values(table, self._rows) for table in self._tables]

    def _make_targets(self, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor]) -> Targets:
        outputs, forward = (
            group_lookup(self._tables, features, self.job.hotness, training=training)
            for training in (True, False)
        )
        return targets_of(outputs, forward, self._tables, gradients, make_optimizer(self.job.optimizer))

    def _fill(self, feature: int, rows: np.ndarray) -> None:
        self.session.run(self._assign[feature], {self._rows: rows})


class TensorFlowSide(SessionSide):
    """A `tf.Variable` with a fixed number of rows for each feature."""

    def _prepare(self) -> None:
        options = {"initializer": v1.zeros_initializer, "use_resource": True}
        self._tables = [
            v1.get_variable(f"tensorflow_{feature}", [self.job.rows, self.job.dim], **options)
            for feature in range(self.job.features)
        ]

    def _make_targets(self, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor]) -> Targets:
        pairs = zip(self._tables, features)
        if self.job.hotness == 1:
            outputs = [tf.gather(table, one.ids) for table, one in pairs]
        else:
            outputs = [
                tf.nn.embedding_lookup_sparse(table, one.sparse, None, combiner="mean")
                for table, one in pairs
            ]
        return targets_of(outputs, outputs, self._tables, gradients, make_optimizer(self.job.optimizer))

    def _fill(self, feature: int, rows: np.ndarray) -> None:
        self._tables[feature].load(rows, self.session)
