"""`sok.DistributedEmbedding` in a session, with the flags of the original SOK's sparse demo.

python sparse_demo.py --combiner sum
python sparse_demo.py --slot_num 3 2 --embedding_vec_size 4 8      # two tables
python sparse_demo.py --functional_api 1 --slot_num 3 --embedding_vec_size 4
python sparse_demo.py --mixed_precision 1
mpirun -np 2 python sparse_demo.py --key_dtype uint32
python sparse_demo.py --tables tensorflow     # the same losses with ordinary variables
"""

import argparse

import horovod.tensorflow as hvd
import tensorflow as tf

import sparse_operation_kit as sok
import training
from models import SparseModel, SparseModelOfVariables, functional_sparse_model


def as_sparse(keys, max_nnz):
    """The keys `[batch, slots, max_nnz]` that are not -1, as a SparseTensor `[batch * slots, max_nnz]`."""
    rows = tf.reshape(keys, [-1, max_nnz])
    present = rows >= 0
    return tf.SparseTensor(
        tf.where(present), tf.boolean_mask(rows, present), tf.shape(rows, out_type=tf.int64)
    )


def make_model(flags, key_dtype):
    """The model that the flags select."""
    # The bound of an embedding layer is the number of rows per rank.
    bound = -(-flags.vocabulary_size // hvd.size()) if flags.tables == "sok" else flags.vocabulary_size
    if flags.functional_api:
        (dim,), (slots,) = flags.embedding_vec_size, flags.slot_num
        return functional_sparse_model(
            bound, dim, slots, flags.max_nnz, flags.combiner, bool(flags.use_hashtable)
        )
    make = SparseModel if flags.tables == "sok" else SparseModelOfVariables
    return make(
        bound,
        flags.embedding_vec_size,
        flags.slot_num,
        flags.max_nnz,
        flags.combiner,
        use_hashtable=bool(flags.use_hashtable),
        key_dtype=key_dtype,
    )


def main():
    """Trains, and prints the loss of each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    training.add_common_flags(parser, slot_num=[3, 2], embedding_vec_size=[4, 8])
    parser.add_argument("--combiner", choices=("sum", "mean"), default="mean")
    parser.add_argument("--max_nnz", type=int, default=4, help="maximal number of keys per slot")
    parser.add_argument("--key_dtype", choices=("int64", "uint32"), default="int64")
    parser.add_argument("--functional_api", type=int, choices=(0, 1), default=0)
    parser.add_argument("--mixed_precision", type=int, choices=(0, 1), default=0)
    flags = training.parse_flags(parser)
    if flags.functional_api and (
        flags.tables != "sok" or len(flags.slot_num) > 1 or flags.key_dtype != "int64"
    ):
        parser.error("--functional_api 1 needs --tables sok, --key_dtype int64 and one table")

    with training.started():
        if flags.mixed_precision:
            training.compute_in_half_precision()
        sok_init = sok.Init(global_batch_size=flags.global_batch_size)
        keys, labels = training.random_samples(flags, flags.max_nnz, absent_keys=True)
        iterator = tf.compat.v1.data.make_initializable_iterator(
            training.batches_of_rank(keys, labels, flags)
        )
        inputs, labels = iterator.get_next()
        inputs = as_sparse(inputs, flags.max_nnz)
        model = make_model(flags, tf.as_dtype(flags.key_dtype))
        step, initialize = training.add_training_step(
            model, inputs, labels, flags, bool(flags.mixed_precision)
        )
        training.run(step, initialize, sok_init, model, iterator, flags)


if __name__ == "__main__":
    main()
