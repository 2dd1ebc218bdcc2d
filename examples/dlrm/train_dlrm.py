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
from dlrm import add_common_flags, train  # noqa: E402
from dlrm_model import Dlrm  # noqa: E402
from models import keras  # noqa: E402
from training import started  # noqa: E402


class TablesOverRanks(keras.layers.Layer):
    """A table for each category."""

    def __init__(self, flags: argparse.Namespace, vocabulary_sizes: list[int]) -> None:
        super().__init__()
        self._tables = dmp.DistributedEmbedding(
            [dmp.Embedding(size, flags.embedding_vec_size, combiner="sum") for size in vocabulary_sizes],
            strategy=flags.strategy,
            column_slice_threshold=flags.column_slice_threshold,
            row_slice_threshold=flags.row_slice_threshold,
            data_parallel_threshold=flags.data_parallel_threshold,
        )
        self._count = len(vocabulary_sizes)

    def call(self, categories: tf.Tensor, training: bool = True) -> tf.Tensor:
        """Returns float32 `[batch, categories, dim]` for int64 `[batch, categories]` in [0, size)."""
        del training
        return tf.stack(self._tables(tf.split(categories, self._count, axis=1)), axis=1)


def parse_flags() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_common_flags(parser)
    add = parser.add_argument
    add("--strategy", default="memory_balanced", help="how tables are distributed over ranks")
    add("--column_slice_threshold", type=int, help="maximum number of elements in a slice of columns")
    add("--row_slice_threshold", type=int, help="tables with at least this many elements are sliced by rows")
    add("--data_parallel_threshold", type=int, help="tables with at most this many elements are replicated")
    add("--learning_rate", type=float, default=0.2, help="of the tables' Adagrad")
    flags = parser.parse_args()
    if flags.global_batch_size % hvd.size():
        parser.error(
            f"--global_batch_size must be a multiple of the {hvd.size()} ranks, not {flags.global_batch_size}"
        )
    return flags


def add_training_step(
    model: Dlrm, inputs: dict[str, tf.Tensor], labels: tf.Tensor, flags: argparse.Namespace
) -> tf.Tensor:
    """A tensor. A run trains on one batch of each rank, and returns the mean loss of all samples."""
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=model(inputs)))
    in_tables = {variable.name for variable in model.embedding.trainable_variables}
    others = [variable for variable in model.trainable_variables if variable.name not in in_tables]
    steps = [
        dmp.DistributedOptimizer(optimizer).minimize(loss, var_list=variables)
        for optimizer, variables in (
            (tf.compat.v1.train.AdagradOptimizer(flags.learning_rate), model.embedding.trainable_variables),
            (tf.compat.v1.train.AdamOptimizer(0.002), others),
        )
    ]
    with tf.control_dependencies(steps):
        return hvd.allreduce(loss)


def main() -> None:
    """Trains, and prints losses and the AUC of the held-out samples."""
    with started():
        flags = parse_flags()
        sizes = dlrm_data.vocabulary_sizes(flags.largest_vocabulary)
        training, held_out = (
            dlrm_data.batches(flags.data_dir, sizes, flags.global_batch_size, hvd.rank(), hvd.size(), part)
            for part in (False, True)
        )
        tables = TablesOverRanks(flags, sizes)
        model = Dlrm(tables, len(sizes), flags.embedding_vec_size, flags.bottom_stack, flags.top_stack)
        step = add_training_step(model, *training.get_next(), flags)
        # broadcast_variables does not change tables that only one rank has.
        train(model, step, training, held_out, flags, dmp.broadcast_variables)


if __name__ == "__main__":
    main()
