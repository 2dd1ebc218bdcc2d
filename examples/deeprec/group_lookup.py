"""Features looked up as one group, in a plain session.

Users and items have embedding variables, and weekdays an ordinary variable. On several ranks, all lookups in
embedding variables together need three exchanges:

    python group_lookup.py
    mpirun -np 2 python group_lookup.py
"""

import argparse

import tensorflow.compat.v1 as tf

from sparse_operation_kit.deeprec import CollectiveStrategy  # the import gives tf DeepRec's names

USERS, ITEMS, MOST_SEEN = 200, 100, 6


def clicks(batch_size, seed):
    """Generated batches. A click depends on the user, the item, the day and the items seen before."""

    def make(number):
        def draw(position, shape, maxval):
            return tf.random.stateless_uniform(
                shape, seed=[seed * 8 + position, number], maxval=maxval, dtype=tf.int64
            )

        users, items = draw(0, [batch_size], USERS), draw(1, [batch_size], ITEMS)
        days = draw(2, [batch_size], 7)
        seen = draw(3, [batch_size, MOST_SEEN], ITEMS)
        lengths = draw(4, [batch_size], MOST_SEEN + 1)
        kept = tf.sequence_mask(lengths, MOST_SEEN)
        liked = tf.reduce_sum(tf.where(kept, seen % 3 - 1, tf.zeros_like(seen)), axis=1)
        score = users % 5 + items % 4 + tf.sign(liked) + tf.cast(days >= 5, tf.int64)
        # Ids may be large, and negative.
        return {
            "user": users * 7919 - 2**40,
            "item": items + 2**33,
            "day": days,
            "seen": tf.RaggedTensor.from_tensor(seen + 2**33, lengths),
            "label": tf.cast(score >= 4, tf.float32),
        }

    return tf.data.Dataset.range(2**40).map(make).prefetch(2)


def build_model(batch):
    """The loss of a batch, with a linear unit on the outputs of a group of four lookups."""
    options = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(filter_freq=2))
    # A user who occurred only once has no row yet, and reads as zeros.
    users = tf.get_embedding_variable("user", embedding_dim=8, ev_option=options)
    items = tf.get_embedding_variable("item", embedding_dim=16)
    days = tf.get_variable("day", [7, 4])

    outputs = tf.nn.group_embedding_lookup_sparse(
        [users, items, days, items],
        [as_bags(batch["user"]), as_bags(batch["item"]), as_bags(batch["day"]), batch["seen"]],
        ["sum", "sum", "sum", "mean"],
        name="clicks",
    )
    features = tf.concat(outputs, axis=1)
    kernel = tf.get_variable("kernel", [features.shape[1], 1])
    bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
    logits = tf.squeeze(tf.matmul(features, kernel) + bias, axis=1)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["label"], logits=logits))


def as_bags(ids):
    """A SparseTensor with one id per sample."""
    count = tf.size(ids, out_type=tf.int64)
    indices = tf.stack([tf.range(count), tf.zeros_like(ids)], axis=1)
    return tf.SparseTensor(indices, ids, tf.stack([count, 1]))


def main():
    """Trains, and prints the mean losses of the first and last tenth of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=256, help="samples per step on each rank")
    flags = parser.parse_args()

    tf.disable_eager_execution()
    tf.config.experimental.enable_distributed_strategy(strategy="collective")
    strategy = CollectiveStrategy()
    tf.set_random_seed(1)
    batch = tf.data.make_one_shot_iterator(clicks(flags.batch_size, seed=strategy.rank)).get_next()
    loss = build_model(batch)
    step = tf.train.AdagradOptimizer(0.5).minimize(loss)
    losses = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(flags.steps):
            losses.append(session.run([loss, step])[0])
    if strategy.rank == 0:
        tenth = max(1, flags.steps // 10)
        first, last = sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
        print(f"ranks {strategy.world_size}, loss {first:.4f} at first, {last:.4f} at last")


if __name__ == "__main__":
    main()
