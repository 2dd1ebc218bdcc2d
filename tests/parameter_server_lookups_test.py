"""Lookups of every kind on a worker: each trains tables on servers with the numbers of one process."""

from __future__ import annotations

import functools
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

import local_cluster
import sparse_operation_kit as sok
from sparse_operation_kit import compat, deeprec, feature_columns
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1
fc = v1.feature_column

OPTIMIZERS = {"sgd": v1.train.GradientDescentOptimizer, "adagrad": v1.train.AdagradOptimizer}
STEPS = 3
SAMPLES, IDS = 6, 20
_RNG = np.random.default_rng(3)
ROWS = np.sort(_RNG.integers(0, SAMPLES - 1, IDS))  # the last bag is empty
KEYS = _RNG.integers(0, 12, IDS)
KINDS = {}


def kind(make):
    """A kind of lookups: a function that makes them, and returns their outputs."""
    KINDS[make.__name__] = make
    return make


def table(name="users", dim=4, **options):
    return sok.EmbeddingVariable(name, dim, **options)


def ordinary(name, rows, dim=4):
    """A variable of different values in each row and column, whatever its place."""
    return v1.get_variable(
        name, initializer=np.linspace(-1, 1, rows * dim, dtype=np.float32).reshape(rows, dim)
    )


def sparse(values=KEYS):
    return tf.SparseTensor(np.stack([ROWS, np.arange(IDS)], axis=1), values, [SAMPLES, IDS])


def ragged(values=KEYS):
    return tf.RaggedTensor.from_value_rowids(tf.convert_to_tensor(values), tf.constant(ROWS), SAMPLES)


def weights():
    """Weights that are trained too."""
    return v1.get_variable("weights", initializer=np.linspace(0.5, 2, IDS, dtype=np.float32)) * 1.0


@kind
def rows():
    ids = tf.constant(KEYS.reshape(4, 5))
    return [tf.nn.embedding_lookup(table(), ids), v1.nn.embedding_lookup(table("items"), ids, max_norm=0.01)]


@kind
def bags():
    users = table()
    return [v1.nn.embedding_lookup_sparse(users, sparse(), None, combiner=one) for one in group.COMBINERS]


@kind
def bags_with_weights():
    users, of_ids = table(), weights()
    outputs = [
        look_up(users, sparse(), sparse(of_ids), combiner=one)
        for look_up in (v1.nn.embedding_lookup_sparse, v1.nn.safe_embedding_lookup_sparse)
        for one in group.COMBINERS
    ]
    fused = deeprec.fused_safe_embedding_lookup_sparse(users, sparse(), sparse(of_ids), "mean", default_id=3)
    return [*outputs, fused]


@kind
def groups():
    users, items, dense = table(), table("items", 3), ordinary("dense", 12)
    of_ids = weights()
    return [
        *sok.group_embedding_lookup_sparse(
            [users, items, users, dense],
            [sparse(), ragged(), ragged(), sparse()],
            ["sum", "mean", "sqrtn", "mean"],
            sp_weights=[sparse(of_ids), ragged(of_ids), None, None],
        ),
        *sok.group_embedding_lookup([users, items], [KEYS.reshape(4, 5), KEYS]),
        sok.group_embedding_lookup([items], [ragged()])[0].values,
        sok.group_embedding_lookup_sparse([items, users], [sparse()] * 2, ["sum"] * 2, side_by_side=True),
        *sok.group_embedding_lookup_sparse([users, dense], [sparse()] * 2, ["sum"] * 2, is_sequence=True),
    ]


@kind
def sums():
    return group.lookup_group([group.SparseLookup(table(), sparse(), "mean", exchange="sums")])


@kind
def rows_in_16_bits():
    users = table(dtype=tf.bfloat16, slot_dtype=tf.bfloat16)
    items = table("items", 3, dtype=tf.float16)
    lookups = [group.DenseLookup(users, tf.constant(KEYS)), group.SparseLookup(items, sparse(), "mean")]
    return group.lookup_group(lookups)


@kind
def layers():
    slots = tf.SparseTensor([[0, 0], [1, 1], [4, 0], [5, 2]], tf.constant([7, 2, 7, 5], tf.int64), [6, 3])
    pooled = sok.DistributedEmbedding("mean", 8, 4, slot_num=2, max_nnz=3, use_hashtable=True)
    dense = sok.All2AllDenseEmbedding(16, 4, slot_num=5, nnz_per_slot=1, use_hashtable=True)
    return [pooled(slots), dense(tf.constant(KEYS.reshape(4, 5)))]


@kind
def keys_without_rows():
    users, is_training = table(), v1.placeholder_with_default(True, [])
    lookups = [group.DenseLookup(users, tf.constant(KEYS))]
    known = group.lookup_group(lookups, training=False)[0]
    with tf.control_dependencies([known]):
        trained = group.lookup_group(lookups, is_training)[0]
    return [trained, known]


@kind
def conditions_and_loops():
    """Lookups in loops have no gradients, also in one process, nor those in branches that are functions."""
    users, keys = table(), tf.constant(KEYS)
    is_small = tf.reduce_sum(keys) < 0
    branch = tf.cond(
        is_small,
        lambda: tf.nn.embedding_lookup(users, keys[:3]),
        lambda: tf.nn.embedding_lookup(users, keys[3:6]),
    )
    _, summed = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, total: (i + 1, total + tf.nn.embedding_lookup(users, keys[i : i + 2])),
        [0, tf.zeros([2, 4])],
    )
    before = [tf.stop_gradient(branch), tf.stop_gradient(summed)]
    with tf.control_dependencies(before):
        return [*before, tf.nn.embedding_lookup(users, keys)]


@kind
def branches():
    users, items, of_ids = table(), table("items"), weights()
    step = v1.get_variable("step", initializer=0, trainable=False, use_resource=True)
    is_even = tf.equal(step.assign_add(1) % 2, 0)
    # Without functions, the only kind of tf.cond whose lookups train on servers.
    with mock.patch.object(control_flow_util, "ENABLE_CONTROL_FLOW_V2", False):
        of_users = tf.cond(
            is_even,
            lambda: tf.nn.embedding_lookup(users, tf.range(SAMPLES)),
            lambda: v1.nn.embedding_lookup_sparse(users, sparse(), sparse(of_ids), combiner="mean"),
        )
        of_items = tf.cond(
            is_even, lambda: tf.nn.embedding_lookup(items, tf.constant(KEYS)), lambda: tf.zeros([IDS, 4])
        )
    return [of_users, tf.nn.embedding_lookup(users, tf.constant(KEYS)) + of_items]


def test_a_branch_that_is_a_function_has_no_gradient():
    with local_cluster.graph_on(1):
        users = table()
        rows = tf.cond(
            v1.placeholder_with_default(True, []),
            lambda: tf.nn.embedding_lookup(users, [1]),
            lambda: tf.zeros([1, 4]),
        )
        with pytest.raises(TypeError, match="'users'.* inside a tf.cond of functions.* parameter servers"):
            tf.gradients(rows, users)


def embedding(name, dim=4, dtype=tf.int64, over=feature_columns.categorical_column_with_embedding, **options):
    return fc.embedding_column(over(name, dtype), dim, **options)


FEATURES = {
    "a": lambda: sparse(),
    "b": lambda: tf.constant(np.where(KEYS < 10, KEYS, -1)[: SAMPLES * 3].reshape(SAMPLES, 3)),
    "words": lambda: tf.strings.as_string(tf.constant(KEYS[: SAMPLES * 3].reshape(SAMPLES, 3))),
    "weights": lambda: sparse(weights()),
}


def features():
    return {name: make() for name, make in FEATURES.items()}


@kind
def columns():
    over = feature_columns.categorical_column_with_embedding
    weighted = fc.weighted_categorical_column(over("a", tf.int64), "weights")
    shared = fc.shared_embedding_columns([over("a", tf.int64), over("b", tf.int64)], 3)
    one = [embedding("a"), embedding("words", 2, tf.string, combiner="sum"), *shared]
    return [fc.input_layer(features(), [*one, fc.embedding_column(weighted, 4)])]


@kind
def columns_in_a_group():
    with feature_columns.group_embedding_column_scope("group"):
        over = feature_columns.categorical_column_with_embedding
        weighted = fc.weighted_categorical_column(over("a", tf.int64), "weights")
        grouped = [embedding("b"), embedding("words", 2, tf.string), fc.embedding_column(weighted, 4)]
    return [fc.input_layer(features(), grouped)]


@kind
def linear_models():
    over = feature_columns.categorical_column_with_embedding
    return [fc.linear_model(features(), [over("a", tf.int64), over("words", tf.string)])]


@kind
def dense_features():
    (layer, *_) = compat.dense_features_layers()
    return [layer([embedding("a"), embedding("words", 2, tf.string)])(features())]


@kind
def sequence_columns():
    if not compat.HAS_KERAS_2:
        pytest.skip("Keras 3 has no layer of sequence columns")
    over = tf.feature_column.sequence_categorical_column_with_embedding
    column = embedding("b", over=lambda name, dtype: over(name, dtype=dtype))
    if hasattr(tf, "contrib"):
        return [tf.contrib.feature_column.sequence_input_layer(features(), [column])[0]]
    return [tf.keras.experimental.SequenceFeatures([column])(features())[0]]


@kind
def multihash():
    initializer = v1.constant_initializer(np.linspace(-1, 1, 16).reshape(4, 4))
    variable = deeprec.get_multihash_variable("m", [[4, 4], [4, 4]], operation="mul", initializer=initializer)
    over = lambda name, dtype: deeprec.categorical_column_with_multihash(name, (4, 4))  # noqa: E731
    column = embedding("a", (2, 3), over=over, initializer=v1.constant_initializer(0.25))
    return [
        v1.nn.embedding_lookup(variable, KEYS),
        v1.nn.embedding_lookup_sparse(variable, sparse(), None, combiner="mean"),
        fc.input_layer(features(), [column]),
    ]


@kind
def adaptive():
    own = table("own", initializer=0.0)
    mask = KEYS % 2
    shared_rows = tf.constant(KEYS[mask == 1] % 6)
    ids = sparse(np.where(mask, KEYS, KEYS % 6))
    return [
        deeprec.adaptive_embedding_lookup_sparse(
            ordinary("shared", 6), own, ids, shared_rows, None, adaptive_mask_tensor=tf.constant(mask)
        )
    ]


@kind
def adaptive_columns():
    def over(name, dtype):
        return deeprec.categorical_column_with_adaptive_embedding(name, 10, dtype)

    column = embedding("words", 3, tf.string, over, initializer=v1.constant_initializer(0.25))
    masks = {"words": tf.constant([1, 0, 1, 0, 1, 1])}
    return [fc.input_layer(features(), [column], adaptive_mask_tensors=masks)]


@kind
def initial_rows():
    initial = np.stack([KEYS + number for number in range(4)], axis=1).astype(np.float32)
    return [v1.nn.embedding_lookup(table("own", initializer=0.0), KEYS, ev_init_value=initial / 10)]


@kind
def dynamic_dimension():
    variable = deeprec.get_dynamic_dimension_embedding_variable("d", 2, 3)
    blocks = tf.constant(KEYS % 4)
    return [
        v1.nn.embedding_lookup(variable, KEYS, blocknums=blocks),
        v1.nn.embedding_lookup_sparse(variable, sparse(), None, combiner="sum", blocknums=blocks),
    ]


@kind
def several_dimensions():
    places = np.stack([ROWS, np.arange(IDS) % 4, np.arange(IDS) // 4], axis=1)
    ids, of_ids = [tf.SparseTensor(places, values, [SAMPLES, 4, 5]) for values in (KEYS, weights())]
    users = table()
    return [
        deeprec.safe_embedding_lookup_multi_dim(users, ids, of_ids, ["max", "mean"]),
        deeprec.safe_embedding_lookup_multi_dim(users, ids, None, ["tile", "sum"]),
    ]


@kind
def prefetched():
    users, items = table(), table("items", 3)
    batches = tf.data.Dataset.from_tensor_slices(np.stack([np.roll(KEYS, step) for step in range(STEPS + 2)]))

    def look_up(keys):
        bags = tf.SparseTensor(np.stack([ROWS, np.arange(IDS)], axis=1), keys, [SAMPLES, IDS])
        return sok.group_embedding_lookup_sparse([users, items], [bags] * 2, ["sum", "mean"])

    prefetch = sok.LookupPrefetch(v1.data.make_one_shot_iterator(batches), look_up)
    return prefetch.outputs, prefetch


@kind
def staged():
    batches = tf.data.Dataset.from_tensor_slices(np.stack([np.roll(KEYS, step) for step in range(STEPS + 2)]))
    keys = deeprec.staged(v1.data.make_one_shot_iterator(batches).get_next(), capacity=2)
    return [tf.nn.embedding_lookup(table(), keys)]


@pytest.fixture(autouse=True, scope="module")
def _deeprec():
    deeprec.install()


class FailsOnce(v1.train.SessionRunHook):
    """Lets the first session fail in its second step, as when a server dies."""

    def __init__(self):
        self._runs = 0

    def after_run(self, run_context, run_values):
        self._runs += 1
        if self._runs == 2:
            raise tf.errors.AbortedError(None, None, "a server has died")


def trained(servers, make, optimizer, *hooks):
    """The outputs of each step, and all variables afterwards."""
    with local_cluster.graph_on(servers) as graph:
        sok.ranks.initialize.ready_graph()
        outputs = make()
        if isinstance(outputs, tuple):
            outputs, *of_kind = outputs
            hooks = [*of_kind, *hooks]
        loss = tf.add_n([tf.reduce_sum(tf.square(one - 0.5)) for one in outputs])
        train = OPTIMIZERS[optimizer](0.1).minimize(loss, global_step=v1.train.get_or_create_global_step())
        tables = [one for one in v1.trainable_variables() if isinstance(one, sok.EmbeddingVariable)]
        for one in tables:
            assert len(one.servers.devices) == servers, one.m_var_name
        contents = [one.keys_and_rows() for one in tables]
        others = [one for one in v1.trainable_variables() if one not in tables]
        creator = v1.train.ChiefSessionCreator(master=graph._target)
        with v1.train.MonitoredSession(creator, hooks=hooks) as session:
            values = [session.run([outputs, train])[0] for _ in range(STEPS)]
            rows, dense = session.run([contents, others])
    return {"outputs": values, "tables": [dict(zip(*pair)) for pair in rows], "variables": dense}


assert_same = functools.partial(local_cluster.assert_close, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("servers", "optimizer", "name"),
    [
        *((1, "sgd", name) for name in ("rows", "groups", "sums", "branches", "columns", "adaptive")),
        *((2, "adagrad", name) for name in sorted(KINDS)),
    ],
)
def test_lookups_train_as_in_one_process(name, servers, optimizer):
    expected = trained(0, KINDS[name], optimizer)
    first, last = expected["outputs"][0], expected["outputs"][-1]
    assert all(np.abs(one - other).max() > 1e-3 for one, other in zip(first, last)), "nothing was trained"
    assert_same(trained(servers, KINDS[name], optimizer), expected)


@pytest.mark.parametrize("name", ["prefetched", "staged"])
def test_batches_that_are_prepared_ahead_go_on_in_the_next_session(name):
    of_servers, of_one_process = [trained(servers, KINDS[name], "sgd", FailsOnce()) for servers in (1, 0)]
    assert_same(of_servers, of_one_process)


def test_a_lookup_in_a_function_is_refused_by_name():
    with local_cluster.graph_on(1):
        users, keys = table(), tf.constant(KEYS)

        @tf.function
        def look_up(keys):
            return tf.cond(
                tf.size(keys) > 0, lambda: tf.nn.embedding_lookup(users, keys), lambda: tf.zeros([0, 4])
            )

        with pytest.raises(ValueError, match="'users' in a tf.function: they are on parameter servers"):
            look_up(keys)
