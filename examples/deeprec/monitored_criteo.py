"""A MonitoredTrainingSession on data in Criteo's format: lines of a label, 13 integers and 26 categories.

--data_dir is the folder of train.txt. Without it, the program generates a small file in this format. Each of
n ranks reads every n-th line. With --checkpoint_dir, which must be the same on all ranks, a run continues the
last one.

    python monitored_criteo.py --data_dir criteo --checkpoint_dir checkpoints
    mpirun -np 2 python monitored_criteo.py --data_dir criteo
"""

import argparse
import os
import random
import sys
import tempfile

import tensorflow.compat.v1 as tf

from sparse_operation_kit.deeprec import CollectiveStrategy  # the import gives tf DeepRec's names

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from text_columns import split_columns  # noqa: E402 - needs the path

INTEGERS = [f"I{column}" for column in range(1, 14)]
CATEGORIES = [f"C{column}" for column in range(1, 27)]


def write_generated(path, lines=4000):
    """Writes lines whose clicks depend on the first two categories and the first integer."""
    generator = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(lines):
            values = [generator.randrange(40) for _ in CATEGORIES]
            counts = [generator.choice(["", str(generator.randrange(20))]) for _ in INTEGERS]
            click = values[0] % 3 + values[1] % 2 + (counts[0] not in ("", "0")) >= 3
            categories = [f"{value * 2654435761 % 2**32:08x}" for value in values]
            # Sometimes a category is missing, or the last ones are omitted.
            categories[5] = categories[5] if generator.random() < 0.8 else ""
            columns = [str(int(click)), *counts, *categories[: generator.choice([26, 26, 24])]]
            file.write("\t".join(columns) + "\n")


def read_lines(path, batch_size, strategy):
    """Batches (features, labels) of this rank's lines, without end."""

    def parse(lines):
        names = ["label", *INTEGERS, *CATEGORIES]
        # Empty categories at the end of a line may be omitted.
        split = split_columns(lines, "\t", len(names))
        columns = dict(zip(names, tf.unstack(split, num=len(names), axis=1)))
        labels = tf.strings.to_number(columns.pop("label"))
        for name in INTEGERS:
            given = tf.strings.regex_replace(columns[name], "^$", "0")
            columns[name] = tf.math.log1p(tf.maximum(tf.strings.to_number(given), 0.0))
        return columns, labels

    lines = tf.data.TextLineDataset(path).shard(strategy.world_size, strategy.rank)
    return lines.repeat().shuffle(10_000, seed=1).batch(batch_size).map(parse).prefetch(2)


def make_columns(dimension):
    """The integers as numbers, and the categories in one group. Keys that occurred once read as zeros."""
    options = tf.EmbeddingVariableOption(
        filter_option=tf.CounterFilter(filter_freq=2), evict_option=tf.GlobalStepEvict(steps_to_live=100_000)
    )
    with tf.feature_column.group_embedding_column_scope(name="categories"):
        keys = [
            tf.feature_column.categorical_column_with_embedding(name, dtype=tf.string, ev_option=options)
            for name in CATEGORIES
        ]
        embeddings = [tf.feature_column.embedding_column(key, dimension) for key in keys]
    return embeddings + [tf.feature_column.numeric_column(name) for name in INTEGERS]


def dense(inputs, units, name, activation=None):
    """A fully connected layer."""
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [inputs.shape[1], units])
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    outputs = tf.matmul(inputs, kernel) + bias
    return activation(outputs) if activation else outputs


def build_model(features, labels, flags):
    """(loss, training op) of a network on the embeddings and the numbers."""
    inputs = tf.feature_column.input_layer(features, make_columns(flags.dimension))
    hidden = dense(dense(inputs, 64, "hidden_1", tf.nn.relu), 32, "hidden_2", tf.nn.relu)
    logits = tf.squeeze(dense(hidden, 1, "logit"), axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    optimizer = tf.train.AdagradOptimizer(flags.learning_rate)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    gradients, _ = tf.clip_by_global_norm(gradients, 5.0)
    step = optimizer.apply_gradients(zip(gradients, variables), global_step=tf.train.get_global_step())
    return loss, step


def main():
    """Trains, and prints the mean losses of the first and last tenth of this run's steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data_dir", help="folder of train.txt")
    parser.add_argument("--checkpoint_dir", help="folder of checkpoints")
    parser.add_argument("--steps", type=int, default=300, help="global step to stop at, across runs")
    parser.add_argument("--batch_size", type=int, default=256, help="samples per step on each rank")
    parser.add_argument("--dimension", type=int, default=8, help="floats per embedding")
    parser.add_argument("--learning_rate", type=float, default=0.05)
    flags = parser.parse_args()

    tf.disable_eager_execution()
    tf.config.experimental.enable_distributed_strategy(strategy="collective")
    strategy = CollectiveStrategy()
    with tempfile.TemporaryDirectory() as generated:
        path = os.path.join(flags.data_dir or generated, "train.txt")
        if not flags.data_dir:
            write_generated(path)
        losses = train(path, flags, strategy)
    if strategy.rank == 0 and losses:
        tenth = max(1, len(losses) // 10)
        first, last = sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
        print(
            f"ranks {strategy.world_size}, step {flags.steps}, loss {first:.4f} at first, {last:.4f} at last"
        )


def train(path, flags, strategy):
    """The loss of each step of this run on this rank."""
    tf.set_random_seed(1)
    tf.train.create_global_step()
    features, labels = tf.data.make_one_shot_iterator(read_lines(path, flags.batch_size, strategy)).get_next()
    loss, train_op = build_model(features, labels, flags)
    losses = []
    hooks = [tf.train.StopAtStepHook(last_step=flags.steps)]
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=flags.checkpoint_dir,
        save_checkpoint_steps=100,
        save_summaries_steps=0,
        save_summaries_secs=None,
        hooks=hooks,
    ) as session:
        while not session.should_stop():
            losses.append(session.run([loss, train_op])[0])
    return losses


if __name__ == "__main__":
    main()
