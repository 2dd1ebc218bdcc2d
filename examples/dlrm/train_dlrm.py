"""DLRM with its tables over ranks. Data is in Criteo's format, or generated without --data_dir.

    python train_dlrm.py
    mpirun -np 2 python train_dlrm.py --data_dir criteo --train_steps 500
    mpirun -np 2 python train_dlrm.py --strategy memory_optimized --column_slice_threshold 400000

Each of n ranks reads every n-th sample. Samples, network and validation are those of examples/sok/dlrm.py.
"""

from __future__ import annotations

import argparse
import os
import sys

import horovod.tensorflow as hvd
import tensorflow as tf

import sparse_operation_kit.dist_model_parallel as dmp

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "sok"))
import dlrm_data  # noqa: E402 - needs the path
from dlrm import add_validation, validate  # noqa: E402
from dlrm_model import mlp, pair_products  # noqa: E402
from models import keras  # noqa: E402


class Dlrm(keras.models.Model):
    """A network for the numbers, a table for each category, and a network on products of all pairs."""

    def __init__(self, flags: argparse.Namespace, vocabulary_sizes: list[int]) -> None:
        super().__init__()
        dim = flags.embedding_vec_size
        self.embedding = dmp.DistributedEmbedding(
            [dmp.Embedding(size, dim, combiner="sum") for size in vocabulary_sizes],
            strategy=flags.strategy,
            column_slice_threshold=flags.column_slice_threshold,
            row_slice_threshold=flags.row_slice_threshold,
            data_parallel_threshold=flags.data_parallel_threshold,
        )
        self._vectors = 1 + len(vocabulary_sizes)
        self._bottom = mlp([*flags.bottom_stack, dim], "relu")
        self._top = mlp([*flags.top_stack, 1], None)

    def call(self, inputs: dict[str, tf.Tensor], training: bool = True) -> tf.Tensor:
        """Returns float32 `[batch]`, the logits of "numbers" `[batch, 13]` and "categories" `[batch, 26]`."""
        del training
        bottom = self._bottom(inputs["numbers"])
        columns = tf.split(inputs["categories"], self._vectors - 1, axis=1)
        vectors = tf.stack([bottom, *self.embedding(columns)], axis=1)
        pairs = pair_products(vectors, self._vectors)
        return tf.squeeze(self._top(tf.concat([bottom, pairs], axis=1)), axis=1)


def parse_flags() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data_dir", help="folder of Criteo's train.txt")
    parser.add_argument("--strategy", default="memory_balanced", help="how tables are dealt to ranks")
    parser.add_argument("--column_slice_threshold", type=int, help="most elements of a slice of columns")
    parser.add_argument("--row_slice_threshold", type=int, help="tables so large are cut by rows")
    parser.add_argument("--data_parallel_threshold", type=int, help="tables so small are on every rank")
    parser.add_argument("--embedding_vec_size", type=int, default=8)
    parser.add_argument(
        "--largest_vocabulary", type=int, default=100_000, help="values of the largest category"
    )
    parser.add_argument("--bottom_stack", type=int, nargs="+", default=[64, 32])
    parser.add_argument("--top_stack", type=int, nargs="+", default=[64, 32])
    parser.add_argument("--global_batch_size", type=int, default=512, help="samples per step over all ranks")
    parser.add_argument("--learning_rate", type=float, default=0.2, help="of the tables' Adagrad")
    parser.add_argument("--train_steps", type=int, default=400)
    parser.add_argument("--validation_interval", type=int, default=100, help="steps between validations")
    flags = parser.parse_args()
    if flags.global_batch_size % hvd.size():
        parser.error(
            f"--global_batch_size must be a multiple of the {hvd.size()} ranks, not {flags.global_batch_size}"
        )
    return flags


def batches_of(flags: argparse.Namespace, sizes: list[int], held_out: bool) -> tf.compat.v1.data.Iterator:
    """An iterator over this rank's batches, endless if they are trained on."""
    samples = dlrm_data.samples(flags.data_dir, sizes, held_out=held_out)
    if held_out:
        # Each rank takes its part of each batch, so that all ranks have the same number of batches.
        batches = samples.batch(flags.global_batch_size).map(
            lambda *batch: tf.nest.map_structure(lambda part: part[hvd.rank() :: hvd.size()], batch)
        )
    else:
        samples = samples.shard(hvd.size(), hvd.rank()).repeat().shuffle(10_000, seed=1)
        batches = samples.batch(flags.global_batch_size // hvd.size(), drop_remainder=True).prefetch(2)
    return tf.compat.v1.data.make_initializable_iterator(batches)


def main() -> None:
    """Trains, and prints losses and the AUC of the held-out samples."""
    tf.compat.v1.disable_eager_execution()
    hvd.init()
    flags = parse_flags()
    tf.compat.v1.set_random_seed(1)
    sizes = dlrm_data.vocabulary_sizes(flags.largest_vocabulary)
    training, held_out = (batches_of(flags, sizes, part) for part in (False, True))

    model = Dlrm(flags, sizes)
    inputs, labels = training.get_next()
    logits = model(inputs)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    in_tables = {variable.name for variable in model.embedding.trainable_variables}
    others = [variable for variable in model.trainable_variables if variable.name not in in_tables]
    train = [
        dmp.DistributedOptimizer(optimizer).minimize(loss, var_list=variables)
        for optimizer, variables in (
            (tf.compat.v1.train.AdagradOptimizer(flags.learning_rate), model.embedding.trainable_variables),
            (tf.compat.v1.train.AdamOptimizer(0.002), others),
        )
    ]
    with tf.control_dependencies(train):
        step = hvd.allreduce(loss)
    auc, update, restart = add_validation(model, *held_out.get_next())
    initialize = tf.group(
        tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()
    )
    # Tables that one rank has are left as they are.
    broadcast = dmp.broadcast_variables(tf.compat.v1.global_variables(), root_rank=0)

    with tf.compat.v1.Session() as session:
        session.run([initialize, training.initializer])
        session.run(broadcast)
        for number in range(1, flags.train_steps + 1):
            reached = session.run(step)
            if number % flags.validation_interval == 0 or number == flags.train_steps:
                area = validate(session, held_out, auc, update, restart)
                if hvd.rank() == 0:
                    print(f"ranks {hvd.size()}, step {number}, loss {reached:.4f}, held-out AUC {area:.4f}")


if __name__ == "__main__":
    main()
