"""The original SOK's DLRM tutorial in a session. Data is in Criteo's format, or generated without --data_dir.

    python dlrm.py
    python dlrm.py --data_dir criteo --train_steps 500
    mpirun -np 2 python dlrm.py
    mpirun -np 2 python dlrm.py --embedding_layer DMP --row_slice_threshold 15000    # a table per category
    python dlrm.py --embedding_layer TF       # with Keras' embeddings instead of this library's

Each of n ranks reads every n-th sample.
"""

import argparse

import horovod.tensorflow as hvd
import tensorflow as tf

import dlrm_data
import sparse_operation_kit as sok
import sparse_operation_kit.dist_model_parallel as dmp
from dlrm_model import EMBEDDINGS, Dlrm
from models import keras, optimizers
from training import started


class WarmUpAndDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that rises linearly for `warmup_steps`, and from `decay_start` decays quadratically to zero."""

    def __init__(self, rate, warmup_steps, decay_start, decay_steps):
        super().__init__()
        self._rate, self._warmup_steps = rate, warmup_steps
        self._decay_start, self._decay_steps = decay_start, decay_steps

    def __call__(self, step):
        """The rate of a step."""
        step = tf.cast(step, tf.float32)
        warmed = tf.minimum((step + 1) / self._warmup_steps, 1.0)
        left = 1 - tf.clip_by_value((step - self._decay_start) / self._decay_steps, 0.0, 1.0)
        return self._rate * warmed * tf.square(left)


def parse_flags():
    """Parses the command line; exits if the ranks do not divide the batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--data_dir", help="folder of Criteo's train.txt")
    add("--embedding_layer", choices=sorted(EMBEDDINGS), default="SOK")
    add("--embedding_vec_size", type=int, default=8)
    add("--largest_vocabulary", type=int, default=100_000, help="values of the largest category")
    add("--bottom_stack", type=int, nargs="+", default=[64, 32])
    add("--top_stack", type=int, nargs="+", default=[64, 32])
    add("--global_batch_size", type=int, default=512, help="samples per step over all ranks")
    add("--train_steps", type=int, default=400)
    add("--validation_interval", type=int, default=100, help="steps between validations")
    add("--learning_rate", type=float, help="of the tables: 0.2 with DMP, else 2.0 after the warm-up")
    add("--embedding_optimizer", choices=("SGD", "Adam"), default="SGD", help="DMP: always Adagrad")
    add("--warmup_steps", type=int, default=50)
    add("--decay_start_steps", type=int, default=300)
    add("--decay_steps", type=int, default=300)
    add("--strategy", default="memory_balanced", help="DMP: how tables are distributed over ranks")
    add("--column_slice_threshold", type=int, help="DMP: maximum number of elements in a slice of columns")
    add("--row_slice_threshold", type=int, help="DMP: larger tables, in elements, are sliced by rows")
    add("--data_parallel_threshold", type=int, help="DMP: smaller tables, in elements, are replicated")
    flags = parser.parse_args()
    if flags.global_batch_size % hvd.size():
        parser.error(
            f"--global_batch_size must be a multiple of the {hvd.size()} ranks, not {flags.global_batch_size}"
        )
    if flags.learning_rate is None:
        flags.learning_rate = 0.2 if flags.embedding_layer == "DMP" else 2.0
    return flags


def add_training_step_over_ranks(model, inputs, labels, flags):
    """The same as `add_training_step` for `TablesOverRanks`: wrapped optimizers average over ranks."""
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=model(inputs)))
    tables, others = split_by_layer(model)
    adagrad, adam = tf.compat.v1.train.AdagradOptimizer, tf.compat.v1.train.AdamOptimizer
    steps = [
        dmp.DistributedOptimizer(optimizer).minimize(loss, var_list=variables)
        for optimizer, variables in ((adagrad(flags.learning_rate), tables), (adam(0.002), others))
    ]
    with tf.control_dependencies(steps):
        return hvd.allreduce(loss)


def split_by_layer(model):
    """(variables of the embedding layer, the others)."""
    tables = model.embedding.trainable_variables
    in_tables = {id(variable) for variable in tables}
    return tables, [variable for variable in model.trainable_variables if id(variable) not in in_tables]


def add_training_step(model, inputs, labels, flags):
    """A tensor. A run trains on one batch of each rank, and returns the mean loss of all samples."""
    schedule = WarmUpAndDecay(
        flags.learning_rate, flags.warmup_steps, flags.decay_start_steps, flags.decay_steps
    )
    embedding_optimizer = getattr(optimizers, flags.embedding_optimizer)(schedule)
    dense_optimizer = optimizers.Adam(0.002)
    logits = model(inputs, training=True)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_sum(losses) / flags.global_batch_size

    if flags.embedding_layer == "SOK":
        embeddings, others = sok.split_embedding_variable_from_others(model.trainable_variables)
    else:
        embeddings, others = split_by_layer(model)
    gradients = tf.gradients(loss, [*embeddings, *others])
    embedding_gradients, other_gradients = gradients[: len(embeddings)], gradients[len(embeddings) :]
    if flags.embedding_layer == "TF":
        # This library sums the gradients of its tables over ranks; here, the program must.
        embedding_gradients = [hvd.allreduce(gradient, op=hvd.Sum) for gradient in embedding_gradients]
    other_gradients = [hvd.allreduce(gradient, op=hvd.Sum) for gradient in other_gradients]
    with sok.OptimizerScope(embeddings):
        train_embeddings = embedding_optimizer.apply_gradients(zip(embedding_gradients, embeddings))
    train_others = dense_optimizer.apply_gradients(zip(other_gradients, others))
    with tf.control_dependencies([train_embeddings, train_others]):
        return hvd.allreduce(loss, op=hvd.Sum)


def add_validation(model, inputs, labels):
    """(AUC, update, initializer). The AUC is over the batches of all ranks that `update` has run on."""
    logits = hvd.allgather(model(inputs, training=False), name="held_out_logits")
    labels = hvd.allgather(labels, name="held_out_labels")
    with tf.compat.v1.variable_scope("validation"):
        value, update = tf.compat.v1.metrics.auc(labels, tf.sigmoid(logits), num_thresholds=1000)
    local = tf.compat.v1.local_variables(scope="validation")
    return value, update, tf.compat.v1.variables_initializer(local)


def validate(session, iterator, auc, update, restart):
    """Computes the AUC of all held-out samples."""
    session.run([iterator.initializer, restart])
    while True:
        try:
            session.run(update)
        except tf.errors.OutOfRangeError:
            return session.run(auc)


def train(model, step, training, held_out, flags, broadcast_variables, first=()):
    """Trains, and prints losses and the AUC of the held-out samples.

    Args:
      model: the model.
      step: a tensor whose run trains on a batch and returns the loss.
      training, held_out: iterators over this rank's batches.
      flags: the command line.
      broadcast_variables: returns an op that copies rank 0's values of those variables that all ranks have.
      first: ops to run before variables are initialized.
    """
    auc, update, restart = add_validation(model, *held_out.get_next())
    initialize = tf.group(
        tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()
    )
    broadcast = broadcast_variables(tf.compat.v1.global_variables())
    with tf.compat.v1.Session() as session:
        session.run(list(first))
        session.run([initialize, training.initializer])
        session.run(broadcast)
        for number in range(1, flags.train_steps + 1):
            loss = session.run(step)
            if number % flags.validation_interval == 0 or number == flags.train_steps:
                reached = validate(session, held_out, auc, update, restart)
                if hvd.rank() == 0:
                    print(f"ranks {hvd.size()}, step {number}, loss {loss:.4f}, held-out AUC {reached:.4f}")


def _broadcast(variables):
    """Tables are left out: rows have the same initial values on any number of ranks."""
    _, dense_variables = sok.split_embedding_variable_from_others(variables)
    return hvd.broadcast_variables(dense_variables, root_rank=0)


def main():
    """Runs the program."""
    with started():
        flags = parse_flags()
        sizes = dlrm_data.vocabulary_sizes(flags.largest_vocabulary)
        training, held_out = (
            dlrm_data.batches(flags.data_dir, sizes, flags.global_batch_size, hvd.rank(), hvd.size(), part)
            for part in (False, True)
        )
        if flags.embedding_layer == "DMP":
            model = Dlrm(sizes, flags)
            step = add_training_step_over_ranks(model, *training.get_next(), flags)
            # It does not change tables that only one rank has.
            train(model, step, training, held_out, flags, dmp.broadcast_variables)
        else:
            sok_init = sok.Init(global_batch_size=flags.global_batch_size)
            model = Dlrm(sizes, flags)
            step = add_training_step(model, *training.get_next(), flags)
            train(model, step, training, held_out, flags, _broadcast, first=[sok_init])


if __name__ == "__main__":
    main()
