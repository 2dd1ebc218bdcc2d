"""The demos' models: this library's embedding layers, or ordinary variables, and a dense unit."""

from __future__ import annotations

import tensorflow as tf

import sparse_operation_kit as sok

# Keras 2: part of TensorFlow up to 2.15; for later versions, the package tf_keras.
if getattr(tf.keras, "__version__", "2").startswith("2"):
    keras = tf.keras
else:
    import tf_keras as keras
# TensorFlow 1.15 has only the optimizers that were called legacy later.
optimizers = getattr(keras.optimizers, "legacy", keras.optimizers)


def logit_unit():
    """The last layer, which initially computes the sum of its inputs."""
    return keras.layers.Dense(1, kernel_initializer="ones", bias_initializer="zeros")


class DenseModel(keras.models.Model):
    """A model with a fixed number of keys per slot, which concatenates the rows of all keys.

    With `dynamic_input`, the layer's input is the distinct keys of the batch.
    """

    def __init__(self, vocabulary_size, dim, slot_num, nnz_per_slot, use_hashtable, dynamic_input):
        super().__init__()
        self._width = slot_num * nnz_per_slot * dim
        self._dynamic_input = dynamic_input
        layer = sok.All2AllDenseEmbedding(
            max_vocabulary_size_per_gpu=vocabulary_size,
            embedding_vec_size=dim,
            slot_num=slot_num,
            nnz_per_slot=nnz_per_slot,
            dynamic_input=dynamic_input,
            use_hashtable=use_hashtable,
        )
        self.embedding_layers = [layer]
        self._logit = logit_unit()

    def call(self, inputs, training=True):
        """Returns float `[batch, 1]` for keys `[batch, slot_num, nnz_per_slot]`."""
        (layer,) = self.embedding_layers
        if self._dynamic_input:
            keys, places = tf.unique(tf.reshape(inputs, [-1]))
            vectors = tf.gather(layer(keys, training=training), places)
        else:
            vectors = layer(inputs, training=training)
        return self._logit(tf.reshape(vectors, [-1, self._width]))


class DenseModelOfVariables(keras.models.Model):
    """`DenseModel` on an ordinary variable."""

    def __init__(self, vocabulary_size, dim, slot_num, nnz_per_slot, **_):
        super().__init__()
        self._width = slot_num * nnz_per_slot * dim
        self.tables = [tf.Variable(tf.zeros([vocabulary_size, dim]), name="table")]
        self._logit = logit_unit()

    def call(self, inputs, training=True):
        """Returns float `[batch, 1]` for keys `[batch, slot_num, nnz_per_slot]`."""
        vectors = tf.nn.embedding_lookup(self.tables[0], inputs)
        return self._logit(tf.reshape(vectors, [-1, self._width]))


def slots_of_table(inputs, first_slot, slots, all_slots, max_nnz):
    """The keys `[batch * slots, max_nnz]` of some slots, from all, `[batch * all_slots, max_nnz]`."""
    by_sample = tf.sparse.reshape(inputs, [-1, all_slots, max_nnz])
    size = tf.stack([tf.shape(by_sample, out_type=tf.int64)[0], slots, max_nnz])
    part = tf.sparse.slice(by_sample, [0, first_slot, 0], size)
    return tf.sparse.reshape(part, [-1, max_nnz])


class SparseModel(keras.models.Model):
    """A model with a variable number of keys per slot, which are combined; one table per entry of `dims`."""

    def __init__(self, vocabulary_size, dims, slot_nums, max_nnz, combiner, use_hashtable, key_dtype):
        super().__init__()
        self._dims, self._slot_nums, self._max_nnz = dims, slot_nums, max_nnz
        self._key_dtype = key_dtype
        self.embedding_layers = [
            sok.DistributedEmbedding(
                combiner=combiner,
                max_vocabulary_size_per_gpu=vocabulary_size,
                embedding_vec_size=dim,
                slot_num=slots,
                max_nnz=max_nnz,
                use_hashtable=use_hashtable,
                key_dtype=key_dtype,
            )
            for dim, slots in zip(dims, slot_nums)
        ]
        self._logit = logit_unit()

    def call(self, inputs, training=True):
        """Returns float `[batch, 1]` for a SparseTensor of keys `[batch * slots of all tables, max_nnz]`."""
        vectors, first_slot = [], 0
        for layer, dim, slots in zip(self.embedding_layers, self._dims, self._slot_nums):
            keys = slots_of_table(inputs, first_slot, slots, sum(self._slot_nums), self._max_nnz)
            # Not before: TensorFlow 1.15 takes no slices of sparse tensors of uint32.
            keys = tf.cast(keys, self._key_dtype)
            vectors.append(tf.reshape(layer(keys, training=training), [-1, slots * dim]))
            first_slot += slots
        return self._logit(tf.concat(vectors, axis=1))


class SparseModelOfVariables(keras.models.Model):
    """`SparseModel` on ordinary variables."""

    def __init__(self, vocabulary_size, dims, slot_nums, max_nnz, combiner, **_):
        super().__init__()
        self._dims, self._slot_nums, self._max_nnz, self._combiner = dims, slot_nums, max_nnz, combiner
        self.tables = [tf.Variable(tf.zeros([vocabulary_size, dim]), name="table") for dim in dims]
        self._logit = logit_unit()

    def call(self, inputs, training=True):
        """Returns float `[batch, 1]` for a SparseTensor of keys `[batch * slots of all tables, max_nnz]`."""
        vectors, first_slot = [], 0
        for table, dim, slots in zip(self.tables, self._dims, self._slot_nums):
            keys = slots_of_table(inputs, first_slot, slots, sum(self._slot_nums), self._max_nnz)
            rows = tf.nn.embedding_lookup_sparse(table, keys, None, combiner=self._combiner)
            vectors.append(tf.reshape(rows, [-1, slots * dim]))
            first_slot += slots
        return self._logit(tf.concat(vectors, axis=1))


def functional_sparse_model(vocabulary_size, dim, slot_num, max_nnz, combiner, use_hashtable):
    """A `SparseModel` of one table, made with Keras' functional API."""
    keys = keras.Input(shape=[max_nnz], dtype=tf.int64, sparse=True)
    layer = sok.DistributedEmbedding(
        combiner=combiner,
        max_vocabulary_size_per_gpu=vocabulary_size,
        embedding_vec_size=dim,
        slot_num=slot_num,
        max_nnz=max_nnz,
        use_hashtable=use_hashtable,
    )
    vectors = keras.layers.Reshape([slot_num * dim])(layer(keys))
    model = keras.Model(inputs=keys, outputs=logit_unit()(vectors))
    model.embedding_layers = [layer]
    return model
