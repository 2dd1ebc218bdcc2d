"""Common code of the programs: start, samples, optimizers, a training step over ranks, and the session."""

from __future__ import annotations

import contextlib
import os
import random

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok
from models import keras, optimizers

LOSS_SCALE = 1024
OPTIMIZERS = ("plugin_adam", "lazy_adam", "adam", "sgd")


def add_common_flags(parser, slot_num, embedding_vec_size):
    """Adds the flags of both demos. `slot_num` and `embedding_vec_size` are defaults, an entry per table."""
    parser.add_argument("--tables", choices=("sok", "tensorflow"), default="sok")
    parser.add_argument("--iter_num", type=int, default=50, help="steps")
    parser.add_argument("--global_batch_size", type=int, default=64, help="samples per step over all ranks")
    parser.add_argument("--vocabulary_size", type=int, default=1024, help="keys are below this number")
    parser.add_argument("--slot_num", type=int, nargs="+", default=slot_num, help="slots of each table")
    parser.add_argument("--embedding_vec_size", type=int, nargs="+", default=embedding_vec_size)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="plugin_adam")
    parser.add_argument("--use_hashtable", type=int, choices=(0, 1), default=1)
    parser.add_argument("--save_dir", help="folder to save the trained tables to, as raw files")
    parser.add_argument("--restore_dir", help="folder of raw files to start from")


def parse_flags(parser):
    """Parses the command line; exits if flags contradict each other."""
    flags = parser.parse_args()
    if len(flags.slot_num) != len(flags.embedding_vec_size):
        parser.error(
            "--slot_num and --embedding_vec_size need as many values as there are tables, one for each"
        )
    if flags.tables != "sok" and (flags.save_dir or flags.restore_dir):
        parser.error("--save_dir and --restore_dir need --tables sok")
    return flags


@contextlib.contextmanager
def started():
    """Starts Horovod; a graph in graph mode, with the same initial weights in every run.

    Without a launcher there is one rank.
    """
    # For Keras in TensorFlow 1.15: resource variables, and policies.
    tf.compat.v1.enable_v2_behavior()
    tf.compat.v1.disable_eager_execution()
    random.seed(1)  # Keras draws seeds of initial weights from it
    hvd.init()
    # After enable_v2_behavior, Adam of TensorFlow 1.15 does not find its variables in a branch of the
    # default graph.
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        yield


def compute_in_half_precision():
    """Lets Keras' layers compute in float16."""
    if hasattr(keras.mixed_precision, "set_global_policy"):
        keras.mixed_precision.set_global_policy("mixed_float16")
    else:  # TensorFlow 1.15
        keras.mixed_precision.experimental.set_policy("mixed_float16")


def random_samples(flags, max_nnz, absent_keys):
    """(keys `[samples, slots, max_nnz]`, labels `[samples, 1]`) of all steps and ranks.

    Each slot has its own range of keys. With `absent_keys`, about half of the keys are -1, which means no
    key; each slot has at least one key.
    """
    generator = np.random.default_rng(7)
    slots, samples = sum(flags.slot_num), flags.global_batch_size * flags.iter_num
    per_slot = flags.vocabulary_size // slots
    keys = generator.integers(0, per_slot, [samples, slots, max_nnz])
    labels = (keys[:, 0, 0] % 2).astype(np.float32)[:, np.newaxis]
    keys = keys + per_slot * np.arange(slots)[:, np.newaxis]
    if absent_keys:
        absent = generator.random(keys.shape) < 0.5
        absent[:, :, 0] = False
        keys[absent] = -1
    return keys, labels


def batches_of_rank(keys, labels, flags):
    """A dataset of batches: this rank's part of the samples of each step."""
    local = flags.global_batch_size // hvd.size()

    def part(array):
        by_rank = array.reshape(flags.iter_num, hvd.size(), local, *array.shape[1:])
        return by_rank[:, hvd.rank()]

    return tf.data.Dataset.from_tensor_slices((part(keys), part(labels)))


def make_optimizers(name, tables, mixed_precision=False):
    """(optimizer of the tables, optimizer of the dense variables) for a name of the original's flag."""
    adam, sgd = optimizers.Adam, optimizers.SGD
    dense = sgd(learning_rate=0.1) if name == "sgd" else adam(learning_rate=0.1)
    if tables == "tensorflow" or name in ("adam", "sgd"):
        embedding = sgd(learning_rate=0.1) if name == "sgd" else adam(learning_rate=0.1)
    elif name == "plugin_adam":
        embedding = sok.optimizers.Adam(learning_rate=0.1)
    else:
        embedding = sok.tf.keras.optimizers.LazyAdamOptimizer(learning_rate=0.1)
    if not mixed_precision:
        return embedding, dense
    scaled = sok.tf.keras.mixed_precision.LossScaleOptimizer
    return scaled(embedding, LOSS_SCALE), scaled(dense, LOSS_SCALE)


def initial_rows(vocabulary_size, dim):
    """float32 `[vocabulary_size, dim]`, all rows different."""
    return np.random.default_rng(dim).normal(0, 0.1, [vocabulary_size, dim]).astype(np.float32)


def load_tables(model, flags):
    """Ops that fill the tables with the rows of files, or with `initial_rows`. They run one after another."""
    loads = []
    for dim, table in zip(flags.embedding_vec_size, tables_of(model, flags)):
        with tf.control_dependencies(loads[-1:]):
            if flags.tables == "tensorflow":
                loads.append(table.assign(initial_rows(flags.vocabulary_size, dim)).op)
            elif flags.restore_dir:
                loads.append(sok.Saver().restore_from_file(table, flags.restore_dir))
            else:
                rows = initial_rows(flags.vocabulary_size, dim)
                loads.append(sok.Saver().load_embedding_values(table, rows))
    return loads


def tables_of(model, flags):
    """The variables that hold embeddings."""
    if flags.tables == "tensorflow":
        return model.tables
    return [layer.embedding_variable for layer in model.embedding_layers]


def add_training_step(model, inputs, labels, flags, mixed_precision=False):
    """(step, initializer). A run of the step trains on a batch of each rank, and returns the loss of all."""
    embedding_optimizer, dense_optimizer = make_optimizers(flags.optimizer, flags.tables, mixed_precision)
    logits = tf.cast(model(inputs, training=True), tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_sum(losses) / flags.global_batch_size
    to_minimize = embedding_optimizer.get_scaled_loss(loss) if mixed_precision else loss

    if flags.tables == "sok":
        embeddings, others = sok.split_embedding_variable_from_others(model.trainable_variables)
    else:
        embeddings = model.tables
        others = [variable for variable in model.trainable_variables if variable not in list(embeddings)]
    gradients = tf.gradients(to_minimize, [*embeddings, *others])
    if mixed_precision:
        gradients = embedding_optimizer.get_unscaled_gradients(gradients)
    embedding_gradients, other_gradients = gradients[: len(embeddings)], gradients[len(embeddings) :]
    # The library sums gradients of embedding variables over ranks; the program must sum the others.
    other_gradients = [hvd.allreduce(gradient, op=hvd.Sum) for gradient in other_gradients]
    with sok.OptimizerScope(embeddings):
        train_embeddings = embedding_optimizer.apply_gradients(zip(embedding_gradients, embeddings))
    train_others = dense_optimizer.apply_gradients(zip(other_gradients, others))
    with tf.control_dependencies([train_embeddings, train_others]):
        step = hvd.allreduce(loss, op=hvd.Sum)
    initialize = [tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()]
    if flags.tables == "sok" and (mixed_precision or flags.optimizer == "plugin_adam"):
        initialize.append(embedding_optimizer.initializer)
    return step, tf.group(initialize)


def run(step, initialize, sok_init, model, iterator, flags):
    """Runs the steps in a session; the first rank prints the losses."""
    load = load_tables(model, flags)
    save = []
    if flags.save_dir and flags.tables == "sok":
        os.makedirs(flags.save_dir, exist_ok=True)
        for table in tables_of(model, flags):
            with tf.control_dependencies(save[-1:]):
                save.append(sok.Saver().dump_to_file(table, flags.save_dir))
    with tf.compat.v1.Session() as session:
        session.run(sok_init)
        session.run([initialize, iterator.initializer])
        session.run(load)
        session.graph.finalize()
        for number in range(flags.iter_num):
            loss = session.run(step)
            if hvd.rank() == 0:
                print(f"[INFO]: step {number}, loss {loss:.6f}")
        session.run(save)
