"""`sok.All2AllDenseEmbedding` in a session, with the flags of the original SOK's dense demo.

python dense_demo.py --optimizer adam
mpirun -np 2 python dense_demo.py --save_dir trained
python dense_demo.py --restore_dir trained
python dense_demo.py --tables tensorflow      # the same losses with an ordinary variable
"""

import argparse

import horovod.tensorflow as hvd
import tensorflow as tf

import sparse_operation_kit as sok
import training
from models import DenseModel, DenseModelOfVariables


def main():
    """Trains, and prints the loss of each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    training.add_common_flags(parser, slot_num=[3], embedding_vec_size=[4])
    parser.add_argument("--nnz_per_slot", type=int, default=2, help="keys per slot")
    parser.add_argument("--dynamic_input", type=int, choices=(0, 1), default=0)
    flags = training.parse_flags(parser)
    if len(flags.slot_num) > 1:
        parser.error("--slot_num and --embedding_vec_size need one value, because there is one table")

    with training.started():
        sok_init = sok.Init(global_batch_size=flags.global_batch_size)
        keys, labels = training.random_samples(flags, flags.nnz_per_slot, absent_keys=False)
        iterator = tf.compat.v1.data.make_initializable_iterator(
            training.batches_of_rank(keys, labels, flags)
        )
        inputs, labels = iterator.get_next()
        make = DenseModel if flags.tables == "sok" else DenseModelOfVariables
        # The bound of an embedding layer is the number of rows per rank.
        bound = -(-flags.vocabulary_size // hvd.size()) if flags.tables == "sok" else flags.vocabulary_size
        model = make(
            bound,
            flags.embedding_vec_size[0],
            flags.slot_num[0],
            flags.nnz_per_slot,
            use_hashtable=bool(flags.use_hashtable),
            dynamic_input=bool(flags.dynamic_input),
        )
        step, initialize = training.add_training_step(model, inputs, labels, flags)
        training.run(step, initialize, sok_init, model, iterator, flags)


if __name__ == "__main__":
    main()
