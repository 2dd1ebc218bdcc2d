"""Feature columns in two groups, one of the user and one of the item. Each group is looked up together.

The features are read from TFRecords with the columns' parsing spec. Without --data_dir, the program writes
generated records first:

    python feature_columns.py
    mpirun -np 2 python feature_columns.py --data_dir records
"""

import argparse
import os
import random
import tempfile

import tensorflow.compat.v1 as tf

from sparse_operation_kit.deeprec import CollectiveStrategy  # the import gives tf DeepRec's names


def user_columns():
    """The columns of one group: names without a vocabulary, weighted interests, and the age in buckets."""
    rare = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(filter_freq=2))
    with tf.feature_column.group_embedding_column_scope(name="user"):
        name = tf.feature_column.categorical_column_with_embedding("user", dtype=tf.string, ev_option=rare)
        interests = tf.feature_column.categorical_column_with_embedding("interests", dtype=tf.string)
        interests = tf.feature_column.weighted_categorical_column(interests, "interest_weights")
        ages = tf.feature_column.bucketized_column(tf.feature_column.numeric_column("age"), [25, 35, 50])
        return [
            tf.feature_column.embedding_column(name, dimension=16),
            tf.feature_column.embedding_column(interests, dimension=8, combiner="mean"),
            tf.feature_column.embedding_column(ages, dimension=4),  # an ordinary variable of four rows
        ]


def item_columns():
    """The columns of another group, where an item and the items seen before share one embedding variable."""
    with tf.feature_column.group_embedding_column_scope(name="item"):
        item = tf.feature_column.categorical_column_with_embedding("item", dtype=tf.int64)
        seen = tf.feature_column.categorical_column_with_embedding("seen", dtype=tf.int64)
        shop = tf.feature_column.categorical_column_with_embedding("shop", dtype=tf.int64)
        return [
            *tf.feature_column.shared_embedding_columns([item, seen], dimension=16, combiner="mean"),
            tf.feature_column.embedding_column(shop, dimension=8),
        ]


def write_records(path, samples):
    """Writes generated samples. A click depends on the user, the item and the user's age."""
    generator = random.Random(1)

    def integers(*values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def strings(*values):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode() for value in values]))

    def floats(*values):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(samples):
            user, item, age = generator.randrange(200), generator.randrange(100), generator.randrange(18, 70)
            topics = generator.sample(["art", "food", "music", "sport"], generator.randrange(4))
            feature = {
                "user": strings(f"user-{user}"),
                "interests": strings(*topics),
                "interest_weights": floats(*[generator.uniform(0.5, 1.5) for _ in topics]),
                "age": floats(age),
                "item": integers(item * 2**33 - 7),
                "seen": integers(
                    *[generator.randrange(100) * 2**33 - 7 for _ in range(generator.randrange(5))]
                ),
                "shop": integers(item % 10),
                "label": floats(user % 4 + item % 3 + (age < 35) > 3),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def read_records(path, columns, batch_size, strategy):
    """Batches (features, labels) of this rank's share of the records, without end."""
    spec = tf.feature_column.make_parse_example_spec(columns)
    spec["label"] = tf.io.FixedLenFeature([], tf.float32)

    def parse(serialized):
        features = tf.io.parse_example(serialized, spec)
        return features, features.pop("label")

    records = tf.data.TFRecordDataset(path).shard(strategy.world_size, strategy.rank)
    return records.repeat().shuffle(1000, seed=1).batch(batch_size).map(parse).prefetch(2)


def main():
    """Trains, and prints the mean losses of the first and last tenth of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data_dir", help="folder of samples.tfrecord; by default generated")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=128, help="samples per step on each rank")
    flags = parser.parse_args()

    tf.disable_eager_execution()
    tf.config.experimental.enable_distributed_strategy(strategy="collective")
    strategy = CollectiveStrategy()
    with tempfile.TemporaryDirectory() as generated:
        path = os.path.join(flags.data_dir or generated, "samples.tfrecord")
        if not flags.data_dir:
            write_records(path, samples=4000)
        losses = train(path, flags, strategy)
    if strategy.rank == 0:
        tenth = max(1, flags.steps // 10)
        first, last = sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
        print(f"ranks {strategy.world_size}, loss {first:.4f} at first, {last:.4f} at last")


def train(path, flags, strategy):
    """The loss of each step on this rank."""
    tf.set_random_seed(1)
    columns = user_columns() + item_columns()
    data = read_records(path, columns, flags.batch_size, strategy)
    features, labels = tf.data.make_one_shot_iterator(data).get_next()
    inputs = tf.feature_column.input_layer(features, columns)
    kernel = tf.get_variable("kernel", [inputs.shape[1], 1])
    bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
    logits = tf.squeeze(tf.matmul(inputs, kernel) + bias, axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    step = tf.train.AdagradDecayOptimizer(0.2, tf.train.get_or_create_global_step()).minimize(
        loss, global_step=tf.train.get_global_step()
    )
    losses = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(flags.steps):
            losses.append(session.run([loss, step])[0])
    return losses


if __name__ == "__main__":
    main()
