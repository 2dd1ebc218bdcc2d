"""An Estimator on MovieLens 100K: will a user like a film?

--data_dir is the folder of u.data, u.user and u.item as published by GroupLens. Without it, the program
generates a small data set in this format. Each rank reads its share of the ratings.

    python estimator_movielens.py --data_dir ml-100k
    mpirun -np 2 python estimator_movielens.py --data_dir ml-100k --model_dir model
"""

import argparse
import os
import random
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

from sparse_operation_kit.deeprec import CollectiveStrategy  # the import gives tf DeepRec's names

GENRES = 19
USER_FIELDS = ["age", "gender", "occupation", "zip"]


def write_generated(folder, ratings=4000, users=120, items=80):
    """Writes generated u.data, u.user and u.item; users like the films whose id has their id's parity."""
    generator = random.Random(1)
    with open(os.path.join(folder, "u.user"), "w", encoding="utf-8") as file:
        for user in range(1, users + 1):
            file.write(f"{user}|{18 + user % 50}|{'MF'[user % 2]}|job{user % 7}|{10000 + user}\n")
    with open(os.path.join(folder, "u.item"), "w", encoding="latin-1") as file:
        for item in range(1, items + 1):
            flags = "|".join(str(int(genre in (item % GENRES, item % 5))) for genre in range(GENRES))
            file.write(f"{item}|Film {item}|01-Jan-{1970 + item % 30}||http://films/{item}|{flags}\n")
    with open(os.path.join(folder, "u.data"), "w", encoding="utf-8") as file:
        for _ in range(ratings):
            user, item = generator.randint(1, users), generator.randint(1, items)
            rating = 5 if user % 2 == item % 2 else generator.randint(1, 3)
            file.write(f"{user}\t{item}\t{rating}\t880000000\n")


def read_ratings(folder):
    """({feature: values of all ratings}, labels), as arrays; a value of "genres" has several strings."""
    with open(os.path.join(folder, "u.user"), encoding="utf-8") as file:
        users = {values[0]: values[1:5] for values in (line.rstrip("\n").split("|") for line in file)}
    with open(os.path.join(folder, "u.item"), encoding="latin-1") as file:
        films = {values[0]: values for values in (line.rstrip("\n").split("|") for line in file)}
    features = {name: [] for name in ["user", "item", "year", "genres", *USER_FIELDS]}
    labels = []
    with open(os.path.join(folder, "u.data"), encoding="utf-8") as file:
        for line in file:
            user, item, rating, _ = line.split("\t")
            features["user"].append(user)
            features["item"].append(item)
            features["year"].append(films[item][2][-4:])
            genres = [str(genre) for genre in range(GENRES) if films[item][5 + genre] == "1"]
            features["genres"].append(genres)
            for name, value in zip(USER_FIELDS, users[user]):
                features[name].append(value)
            labels.append(float(int(rating) >= 4))
    most = max(map(len, features["genres"]))
    features["genres"] = [genres + [""] * (most - len(genres)) for genres in features["genres"]]
    # Arrays, because TensorFlow looks at each entry of a list.
    return {name: np.array(values) for name, values in features.items()}, np.array(labels, np.float32)


def make_input_fn(ratings, batch_size, strategy, training):
    """This rank's share of the ratings: four fifths of them without end for training, else the others once.

    All ranks have the same number of batches, because a step needs all ranks.
    """
    features, labels = ratings

    def input_fn():
        order = list(range(len(labels)))
        random.Random(2).shuffle(order)
        part = order[: len(order) * 4 // 5] if training else order[len(order) * 4 // 5 :]
        part = part[strategy.rank :: strategy.world_size][: len(part) // strategy.world_size]
        mine = {name: values[part] for name, values in features.items()}
        data = tf.data.Dataset.from_tensor_slices((mine, labels[part]))
        if training:
            data = data.shuffle(len(part), seed=3).repeat()
        return data.batch(batch_size).prefetch(2)

    return input_fn


def make_columns(dimension):
    """One group of columns of strings without vocabularies."""
    names = ["user", "item", "year", "genres", *USER_FIELDS]
    with tf.feature_column.group_embedding_column_scope(name="movielens"):
        keys = [tf.feature_column.categorical_column_with_embedding(name, dtype=tf.string) for name in names]
        return [tf.feature_column.embedding_column(key, dimension, combiner="mean") for key in keys]


def model_fn(features, labels, mode, params):
    """A factorization machine: a linear part and products of all pairs of embeddings."""
    dimension = params["dimension"]
    flat = tf.feature_column.input_layer(features, make_columns(dimension))
    fields = tf.reshape(flat, [-1, flat.shape[1] // dimension, dimension])
    summed = tf.reduce_sum(fields, axis=1)
    pairs = 0.5 * (tf.square(summed) - tf.reduce_sum(tf.square(fields), axis=1))
    inputs = tf.concat([flat, pairs], axis=1)
    kernel = tf.get_variable("kernel", [inputs.shape[1], 1])
    bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
    logits = tf.squeeze(tf.matmul(inputs, kernel) + bias, axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"probability": tf.sigmoid(logits)})
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    objective = loss + 0.03 * tf.reduce_mean(tf.reduce_sum(tf.square(fields), axis=[1, 2]))
    optimizer = tf.train.AdamAsyncOptimizer(params["learning_rate"])
    step = optimizer.minimize(objective, global_step=tf.train.get_global_step())
    metrics = {"auc": tf.metrics.auc(labels, tf.sigmoid(logits), num_thresholds=1000)}
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops=metrics)


def main():
    """Trains, and prints the AUC on held-out ratings after one step and at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data_dir", help="folder of u.data, u.user and u.item")
    parser.add_argument(
        "--model_dir", help="folder of checkpoints, the same on all ranks; needed on several ranks"
    )
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch_size", type=int, default=512, help="samples per step over all ranks")
    flags = parser.parse_args()

    tf.disable_eager_execution()
    tf.config.experimental.enable_distributed_strategy(strategy="collective")
    strategy = CollectiveStrategy()
    if strategy.world_size > 1 and not flags.model_dir:
        parser.error("several ranks need --model_dir, because all ranks save to the same folder")
    with tempfile.TemporaryDirectory() as generated:
        if not flags.data_dir:
            write_generated(generated)
        ratings = read_ratings(flags.data_dir or generated)
    with tempfile.TemporaryDirectory() as nowhere:
        run(flags, ratings, strategy, flags.model_dir or nowhere)


def run(flags, ratings, strategy, model_dir):
    """Trains an Estimator in `model_dir`."""
    config = tf.estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=200, log_step_count_steps=None)
    params = {"dimension": 8, "learning_rate": 0.002}
    estimator = tf.estimator.Estimator(model_fn, model_dir, config, params)
    batch_size = flags.batch_size // strategy.world_size
    training = make_input_fn(ratings, batch_size, strategy, training=True)
    held_out = make_input_fn(ratings, batch_size, strategy, training=False)
    estimator.train(training, steps=1)
    before = estimator.evaluate(held_out)
    estimator.train(training, max_steps=flags.steps)
    after = estimator.evaluate(held_out)
    if strategy.rank == 0:
        print(
            f"ranks {strategy.world_size}, step {after['global_step']}, "
            f"held-out AUC {before['auc']:.4f} at first, {after['auc']:.4f} at last"
        )


if __name__ == "__main__":
    main()
