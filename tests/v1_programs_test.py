# Tags: slow, old_version
# Not on GPUs: a program; the tests gpu_* have one
"""Programs of SOK's and DeepRec's users run under TensorFlow 1.15 with `import tensorflow as tf`.

They are those of the README and of the documents for these users, and programs with the names that
TensorFlow 1 has. With TensorFlow 2 the latter run too, with another import of TensorFlow.
"""

import pytest

import document_snippets
import harness  # noqa: F401 - quiets TensorFlow in the children too
from sparse_operation_kit import compat

PYTHON = [
    block
    for block in document_snippets.blocks("python")
    if block[0].startswith(document_snippets.OF_OTHER_LIBRARIES)
]
OF_LAUNCHER = document_snippets.blocks("py")
IMPORT = (
    "import tensorflow as tf\n"
    if not compat.IS_TENSORFLOW_2
    else "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n"
)

# One of the original SOK's users, with both of its layers, columns in a group and LazyAdam.
SOK = """
import numpy as np
import sparse_operation_kit as sok
from sparse_operation_kit import feature_columns

with feature_columns.group_embedding_column_scope("item"):
    columns = [
        tf.feature_column.embedding_column(
            feature_columns.categorical_column_with_embedding(name, tf.int64), dimension=size
        )
        for name, size in (("item", 4), ("brand", 2))
    ]
columns.append(tf.feature_column.numeric_column("price"))
users = tf.placeholder(tf.int64, [None, 2, 1], name="users")
ids = tf.sparse_placeholder(tf.int64, name="ids")
items = {
    "item": tf.placeholder(tf.int64, [None, 1]),
    "brand": tf.placeholder(tf.int64, [None, 3]),
    "price": tf.placeholder(tf.float32, [None, 1]),
}
clicks = tf.placeholder(tf.float32, [None, 1])

sok_init = sok.Init(global_batch_size=32, seed=1)
dense_layer = sok.All2AllDenseEmbedding(
    max_vocabulary_size_per_gpu=1024, embedding_vec_size=4, slot_num=2, nnz_per_slot=1
)
sparse_layer = sok.DistributedEmbedding(
    combiner="mean", max_vocabulary_size_per_gpu=1024, embedding_vec_size=3, slot_num=1, max_nnz=2
)
inputs = [
    tf.reshape(dense_layer(users), [-1, 8]),
    tf.reshape(sparse_layer(ids), [-1, 3]),
    tf.feature_column.input_layer(items, columns),
]
kernel = tf.get_variable("kernel", [18, 1], initializer=tf.random_normal_initializer(seed=1))
bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
logits = tf.matmul(tf.concat(inputs, axis=1), kernel) + bias
loss = tf.losses.sigmoid_cross_entropy(clicks, logits)
tables, others = sok.split_embedding_variable_from_others(tf.trainable_variables())
assert len(tables) == 4 and len(others) == 2
gradients = tf.gradients(loss, tables + others)
with sok.OptimizerScope(tables):
    lazy_adam = sok.tf.keras.optimizers.LazyAdamOptimizer(0.05)
    train = [lazy_adam.apply_gradients(zip(gradients[:4], tables))]
train.append(tf.train.AdamOptimizer(0.05).apply_gradients(zip(gradients[4:], others)))

keys = np.arange(32, dtype=np.int64) * (2**40 + 1) - 5
feeds = {
    users: np.stack([keys, -keys], axis=1)[:, :, None],
    ids: tf.SparseTensorValue(np.stack([np.arange(32), np.zeros(32)], axis=1), keys, [32, 2]),
    items["item"]: keys[:, None],
    items["brand"]: np.stack([keys, keys % 3, -np.ones(32)], axis=1),
    items["price"]: np.ones([32, 1]),
    clicks: (keys % 2)[:, None],
}
with tf.Session() as session:
    assert session.run(sok_init) == b"OK"
    session.run(tf.global_variables_initializer())
    losses = [session.run([loss, train], feeds)[0] for _ in range(20)]
    assert losses[-1] < 0.2 < losses[0], losses
    assert session.run(dense_layer.embedding_variable.size()) == len({*keys, *-keys})
    assert session.run(sparse_layer.embedding_variable.size()) == 32
"""

# One of DeepRec's users, with one import added.
DEEPREC = """
import sparse_operation_kit.deeprec
import tempfile

tf.set_random_seed(1)

options = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(filter_freq=2))
table = tf.get_embedding_variable("table", embedding_dim=4, ev_option=options, partitioner=None)
with tf.feature_column.group_embedding_column_scope(name="user"):
    columns = [
        tf.feature_column.embedding_column(
            tf.feature_column.categorical_column_with_embedding(name, dtype=dtype), dimension=2
        )
        for name, dtype in (("user", tf.int64), ("city", tf.string))
    ]
features = {"user": tf.constant([[2**40], [-7]], tf.int64), "city": tf.constant([["Bonn"], ["Ulm"]])}
inputs = tf.feature_column.input_layer(features, columns)
rows = tf.nn.embedding_lookup(table, tf.constant([5, 5], tf.int64))
kernel = tf.get_variable("kernel", [8, 1], initializer=tf.ones_initializer())
logits = tf.matmul(tf.concat([inputs, rows], axis=1), kernel)
loss = tf.losses.mean_squared_error(tf.constant([[1.0], [-1.0]]), logits)
step = tf.train.AdamAsyncOptimizer(0.05).minimize(loss, global_step=tf.train.get_or_create_global_step())
folder = tempfile.mkdtemp()
with tf.train.MonitoredTrainingSession(
    checkpoint_dir=folder, save_checkpoint_secs=600, save_incremental_checkpoint_secs=60
) as session:
    losses = [session.run([loss, step])[0] for _ in range(40)]
assert losses[-1] < 0.1 * losses[0], losses
assert tf.train.latest_checkpoint(folder).endswith("-40")
"""


def test_each_document_has_programs():
    documents = {where.split(":")[0] for where, _ in PYTHON}
    assert documents == set(document_snippets.OF_OTHER_LIBRARIES)
    assert OF_LAUNCHER


@pytest.mark.parametrize("code", [pytest.param(code, id=where) for where, code in PYTHON])
def test_a_program_of_the_documents_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document_snippets.run(code, tmp_path)


@pytest.mark.parametrize("code", [pytest.param(code, id=where) for where, code in OF_LAUNCHER])
def test_a_program_of_deeprecs_documents_runs_by_the_launcher(code, tmp_path):
    document_snippets.run_by_deeprecs_launcher(code, tmp_path)


@pytest.mark.parametrize("code", [pytest.param(SOK, id="sok"), pytest.param(DEEPREC, id="deeprec")])
def test_a_program_with_names_of_tensorflow_1_trains(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document_snippets.run(IMPORT + code, tmp_path)
