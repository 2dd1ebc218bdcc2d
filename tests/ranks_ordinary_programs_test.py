# Not on GPUs: graphs, names and libraries
"""Programs without variables of this library run with all replacements as with TensorFlow's originals.

The programs have the shapes of TensorFlow's own tests of optimizers, Savers and feature columns: eager, in
graphs, in functions, and with Keras. Each runs before anything is installed and after everything is, and
returns its results, its errors and the graphs that it has built.
"""

import os
import tempfile

import numpy as np
import tensorflow as tf

import ranks
import sparse_operation_kit as sok
import sparse_operation_kit.deeprec as deeprec
import sparse_operation_kit.dist_model_parallel as dmp
from same_length import zip_equal
from sparse_operation_kit import experiment
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.deeprec.replacement_entries import Part
from sparse_operation_kit.dist_model_parallel.keras import keras
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
feature_column = tf.feature_column

V1_OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
}
KERAS_OPTIMIZERS = {
    f"{kind} {name}": (module, name, options)
    for kind, module in (("legacy", "legacy"), ("new", ""))
    for name, options in (
        ("SGD", {"momentum": 0.9}),
        ("Adam", {"clipnorm": 0.5}),
        ("Adagrad", {"global_clipnorm": 0.5}),
    )
}


def keras_optimizer(name):
    module, cls, options = KERAS_OPTIMIZERS[name]
    owner = keras.optimizers.legacy if module else keras.optimizers
    return getattr(owner, cls)(0.1, **options)


def outcome(function):
    """The function's result; if it fails, the error's type and text."""
    try:
        return function()
    except Exception as error:  # of any kind: it must be the same with and without the library
        return type(error).__name__, str(error)


def slices(dtype=tf.float32):
    """A sparse gradient of a variable [4, 2], with an id twice."""
    return tf.IndexedSlices(tf.cast([[1, 2], [3, 4], [5, 6]], dtype), tf.constant([2, 0, 2]), [4, 2])


def variables():
    return [tf.Variable(tf.ones([4, 2]), name="rows"), tf.Variable([1.0, 2.0], name="bias")]


def gradients_of(tensor):
    """Pairs of each kind of gradient that optimizers take."""
    return {
        "dense": [tensor(np.full([4, 2], 0.5, np.float32)), tensor(np.float32([1, -1]))],
        "sparse": [slices(), None],
        "both": [slices(), tensor(np.float32([1, -1]))],
    }


def eager_optimizers():
    results = {}
    makers = {
        **V1_OPTIMIZERS,
        **{name: (lambda name=name: keras_optimizer(name)) for name in KERAS_OPTIMIZERS},
    }
    for name, make in makers.items():
        for kind, of_kind in gradients_of(tf.constant).items():
            optimizer, own = make(), variables()
            for _ in range(2):
                optimizer.apply_gradients(zip_equal(of_kind, own))
            results[name, kind] = [variable.numpy() for variable in own]
            if hasattr(optimizer, "get_slot"):
                results[name, kind, "slot"] = outcome(lambda o=optimizer, v=own: type(o.get_slot(v[0], "m")))
        optimizer, own = make(), variables()
        arrays = [np.ones([4, 2], np.float32), [1.0, 2.0]]
        pairs = list(zip_equal(arrays, own))
        results[name, "arrays"] = outcome(lambda o=optimizer, p=pairs: o.apply_gradients(p) is None)
        results[name, "after arrays"] = [variable.numpy() for variable in own]
        minimized = make()
        minimized.minimize(lambda v=own: tf.reduce_sum(tf.square(v[0])), var_list=own[:1])
        results[name, "minimize"] = own[0].numpy()
        for number, bad in enumerate((3, [], [3], [(None, own[0])], [(tf.constant([1.0]), own[1], 3)])):
            results[name, "bad", number] = outcome(lambda m=make, b=bad: m().apply_gradients(b))
    return results


def optimizers_in_functions():
    results = {}
    for name in KERAS_OPTIMIZERS:
        optimizer, own = keras_optimizer(name), variables()

        @tf.function
        def step(optimizer=optimizer, own=own):
            with tf.GradientTape() as tape:
                rows = tf.nn.embedding_lookup(own[0], [1, 3, 1])
                loss = tf.reduce_sum(tf.square(rows * own[1]))
            optimizer.apply_gradients(zip_equal(tape.gradient(loss, own), own))
            return loss

        results[name] = [step().numpy() for _ in range(2)], [variable.numpy() for variable in own]
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        y = tf.stack([x * x, x * 3.0])
    return {**results, "jacobian": tape.jacobian(y, x).numpy(), "none": tape.jacobian(y, tf.Variable(1.0))}


def norms():
    mixed = [slices(), None, tf.constant([3.0, 4.0])]
    return {
        "global": tf.linalg.global_norm(mixed).numpy(),
        "tuple": tf.linalg.global_norm(tuple(mixed)).numpy(),
        "dense": tf.linalg.global_norm(mixed[2:]).numpy(),
        "bad": outcome(lambda: tf.linalg.global_norm(slices())),
        "no list": outcome(lambda: tf.linalg.global_norm(3)),
        "clip": [as_arrays(one) for one in tf.clip_by_global_norm(mixed, 1.0)[0]],
        "given": [as_arrays(one) for one in tf.clip_by_global_norm(mixed, 1.0, use_norm=tf.constant(2.0))[0]],
        "by norm": as_arrays(tf.clip_by_norm(slices(), 1.0)),
        "by norm of rows": as_arrays(tf.clip_by_norm(slices(), 1.0, axes=[1])),
        "by norm, dense": tf.clip_by_norm([3.0, 4.0], 1.0).numpy(),
    }


def as_arrays(gradient):
    if isinstance(gradient, tf.IndexedSlices):
        return gradient.values.numpy(), gradient.indices.numpy()
    return None if gradient is None else gradient.numpy()


def models_of_keras():
    results = {}
    data = np.arange(12, dtype=np.float32).reshape(6, 2)
    for eagerly in (True, False):
        for name in KERAS_OPTIMIZERS:
            ones = keras.initializers.Ones()
            model = keras.Sequential(
                [
                    keras.layers.Embedding(12, 3, embeddings_initializer=ones, input_length=2),
                    keras.layers.Flatten(),
                ]
                + [keras.layers.Dense(1, kernel_initializer=ones)]
            )
            model.compile(keras_optimizer(name), "mse", run_eagerly=eagerly)
            history = model.fit(data, data[:, :1], batch_size=3, epochs=2, shuffle=False, verbose=0)
            results[name, eagerly] = history.history["loss"], model.get_weights()
    return results


def graph_of(build):
    """What `build(session)` returns, and the graph that it has built."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.set_random_seed(3)
        result = build(session)
        # The order of ops is that in which they were made.
        nodes = [str(node) for node in graph.as_graph_def().node]
    return result, nodes, graph.get_all_collection_keys()


def optimizers_in_graphs():
    def train(session, make, use_resource):
        with v1.variable_scope("scope", use_resource=use_resource):
            rows = v1.get_variable("rows", initializer=np.ones([4, 2], np.float32))
            bias = v1.get_variable("bias", initializer=np.ones([2], np.float32))
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(rows, [1, 3, 1]) + bias))
        optimizer = make()
        pairs = optimizer.compute_gradients(loss, [rows, bias])
        clipped, norm = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 1.0)
        count = v1.train.get_or_create_global_step()
        step = optimizer.apply_gradients(zip_equal(clipped, [rows, bias]), global_step=count, name="step")
        other = make().minimize(loss)
        session.run(v1.global_variables_initializer())
        values = [session.run([norm, step])[0] for _ in range(2)]
        session.run(other)
        names = [variable.name for variable in v1.global_variables()]
        return values, names, session.run([rows, bias, count]), [type(slot) for slot in optimizer.variables()]

    return {
        (name, use_resource): graph_of(lambda session, m=make, u=use_resource: train(session, m, u))
        for name, make in V1_OPTIMIZERS.items()
        for use_resource in (True, False)
    }


def savers():
    def save(session, **options):
        first = v1.get_variable("first", initializer=[1.0, 2.0])
        second = v1.get_variable("second", initializer=[3], partitioner=None)
        saver = v1.train.Saver({"renamed": first, "second": second}, max_to_keep=2, **options)
        session.run(v1.global_variables_initializer())
        with tempfile.TemporaryDirectory() as folder:
            prefix = os.path.join(folder, "model")
            for step in range(4):
                saver.save(session, prefix, global_step=step)
            session.run(first.assign([7.0, 8.0]))
            latest = tf.train.latest_checkpoint(folder)
            saver.restore(session, latest)
            found = sorted(os.listdir(folder)), tf.train.list_variables(latest), session.run([first, second])
            error = outcome(lambda: saver.restore(session, f"{prefix}-9"))
        return found, os.path.basename(latest), [part.replace(folder, "") for part in error]

    options = (
        {},
        {"sharded": True},
        {"restore_sequentially": True},
        {"reshape": True},
        {"pad_step_number": True},
    )
    results = {str(one): graph_of(lambda session, o=one: save(session, **o)) for one in options}
    with tf.Graph().as_default():
        results["no variables"] = outcome(lambda: v1.train.Saver())
        results["bad"] = outcome(lambda: v1.train.Saver({"one": tf.constant(1)}))
        results["positional"] = outcome(
            lambda: v1.train.Saver([v1.get_variable("v", [])], False, True)._max_to_keep
        )
    return results


def monitored_sessions():
    def train(folder, **options):
        with tf.Graph().as_default() as graph:
            variable = v1.get_variable("v", initializer=1.0)
            step = v1.train.GradientDescentOptimizer(0.1).minimize(
                variable, global_step=v1.train.get_or_create_global_step()
            )
            scaffold = v1.train.Scaffold(saver=v1.train.Saver(max_to_keep=3))
            own = os.path.join(folder, "own")
            hooks = [v1.train.CheckpointSaverHook(own, scaffold=scaffold, **options)]
            with v1.train.MonitoredTrainingSession("", True, folder, scaffold, hooks) as session:
                for _ in range(3):
                    session.run(step)
                value = session.run(variable)
            nodes = [node.name for node in graph.as_graph_def().node]
        # The names of events have the time.
        files = [sorted(name for name in names if "events" not in name) for _, _, names in os.walk(folder)]
        return value, nodes, files

    results = {}
    for options in ({"save_secs": 1000}, {"save_steps": 2}):
        with tempfile.TemporaryDirectory() as folder:
            results[str(options)] = train(folder, **options)
    return results


def columns():
    """Dense columns of each kind but those over unbounded keys, and the features of two samples."""
    users = feature_column.categorical_column_with_identity("users", 5)
    words = feature_column.categorical_column_with_hash_bucket("words", 7)
    age = feature_column.numeric_column("age")
    ages = feature_column.bucketized_column(age, [20.0, 40.0])
    ones = v1.ones_initializer()
    weighted = feature_column.weighted_categorical_column(users, "weights")
    dense = [
        age,
        feature_column.indicator_column(ages),
        feature_column.embedding_column(words, 3, initializer=ones),
        feature_column.embedding_column(weighted, 2, combiner="sum", initializer=ones, max_norm=0.5),
        feature_column.indicator_column(feature_column.crossed_column([ages, "words"], 4)),
    ]
    features = {
        "users": tf.constant([[1, 4], [0, -1]], tf.int64),
        "weights": tf.constant([[1.0, 2.0], [3.0, 0.0]]),
        "words": tf.constant([["a", "b"], ["", "a"]]),
        "age": tf.constant([[30.0], [50.0]]),
    }
    return dense, [users, words, ages, weighted], features


def feature_columns():
    def layer(session):
        dense, categorical, features = columns()
        collections, of_columns, tensors = ["mine"], {}, {}
        output = v1.feature_column.input_layer(
            features, iter(dense), collections, True, of_columns, cols_to_output_tensors=tensors
        )
        linear = v1.feature_column.linear_model(features, categorical + dense[:1], 2, "mean", collections)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        names = [[variable.name for variable in of_columns[column]] for column in dense]
        mine = [variable.name for variable in v1.get_collection("mine")]
        return session.run([output, linear]), collections, names, mine, sorted(c.name for c in tensors)

    def shared(session):
        users = feature_column.categorical_column_with_identity("users", 5)
        friends = feature_column.categorical_column_with_identity("friends", 5)
        both = v1.feature_column.shared_embedding_columns(
            [users, friends], 2, initializer=v1.ones_initializer()
        )
        ids = tf.constant([[1], [4]], tf.int64)
        output = v1.feature_column.input_layer({"users": ids, "friends": ids}, both)
        session.run(v1.global_variables_initializer())
        return session.run(output), [variable.name for variable in v1.global_variables()]

    dense, _, features = columns()
    of_keras = keras.layers.DenseFeatures(dense)
    return {
        "layer": graph_of(layer),
        "shared": graph_of(shared),
        "keras": [of_keras(features).numpy(), of_keras(features, training=False).numpy()],
        "no columns": outcome(lambda: v1.feature_column.input_layer(features, [])),
        "no column": outcome(lambda: v1.feature_column.input_layer(features, [3])),
        "no dimension": outcome(lambda: feature_column.embedding_column(columns()[1][0], 0)),
        "no feature": outcome(lambda: v1.feature_column.input_layer({}, dense[:1])),
    }


def lookups():
    def look_up(session):
        one = v1.get_variable("one", initializer=np.arange(12, dtype=np.float32).reshape(6, 2))
        parts = v1.get_variable(
            "parts", [6, 2], initializer=v1.ones_initializer(), partitioner=v1.fixed_size_partitioner(2)
        )
        ids = tf.sparse.from_dense([[1, 4], [0, 5]])
        weights = tf.sparse.from_dense([[1.0, 4.0], [0.0, 5.0]])
        rows = [
            v1.nn.embedding_lookup(one, [0, 3], "mod", "name", True, 1.0),
            v1.nn.embedding_lookup(parts, [[0], [3]], partition_strategy="div"),
            tf.nn.embedding_lookup(one, [5], 2.0),
            v1.nn.embedding_lookup_sparse(one, ids, None, "mod", "sparse", "sqrtn"),
            v1.nn.embedding_lookup_sparse(parts, ids, weights, combiner="mean", max_norm=1.0),
            v1.nn.safe_embedding_lookup_sparse([one], ids, None, "mean", 3),
            tf.nn.safe_embedding_lookup_sparse([one], ids, default_id=2),
        ]
        session.run(v1.global_variables_initializer())
        return session.run(rows)

    return {
        "rows": graph_of(look_up),
        "eager": tf.nn.embedding_lookup(tf.Variable([[1.0], [2.0]]), [1]).numpy(),
        "ragged": tf.nn.embedding_lookup_sparse(
            tf.Variable([[1.0], [2.0]]), tf.sparse.from_dense([[1]]), None, "sum"
        ).numpy(),
        "combiner": outcome(
            lambda: v1.nn.embedding_lookup_sparse([[1.0]], tf.sparse.from_dense([[1]]), None, combiner="max")
        ),
        "no ids": outcome(lambda: tf.nn.embedding_lookup([[1.0]], None)),
        "no table": outcome(lambda: tf.nn.embedding_lookup(None, [0])),
    }


def messages_and_names():
    config = v1.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    config.graph_options.rewrite_options.min_graph_nodes = -1

    def set_field(message, name, value):
        setattr(message, name, value)

    return {
        "config": str(config),
        "copy": str(v1.ConfigProto.FromString(config.SerializeToString())),
        "set": outcome(lambda: set_field(config, "no_such_field", 1)),
        "get": outcome(lambda: config.no_such_field),
        "type": outcome(lambda: set_field(config, "intra_op_parallelism_threads", "many")),
        "absent": [hasattr(owner, "no_such_name") for owner in (tf, tf.data, v1, v1.train)],
        "error": outcome(lambda: tf.no_such_name),
        "import": outcome(lambda: __import__("tensorflow.no_such_module")),
    }


PROGRAMS = [
    eager_optimizers,
    optimizers_in_functions,
    norms,
    models_of_keras,
    optimizers_in_graphs,
    savers,
    monitored_sessions,
    feature_columns,
    lookups,
    messages_and_names,
]


def install_everything():
    """Uses each part of the library, as programs do, and so installs its replacements."""
    with tf.Graph().as_default():
        sok.Init(global_batch_size=communicator().size)
        table = sok.EmbeddingVariable("table", 4)
        optimizer = sok.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), op="sum")
        optimizer.minimize(tf.reduce_sum(tf.nn.embedding_lookup(table, [1])))
        v1.train.Saver()
        experiment.Variable(np.ones([4, 2], np.float32))
    layer = dmp.DistributedEmbedding([keras.layers.Embedding(9, 4) for _ in range(2)])
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(output) for output in layer([tf.constant([1])] * 2)])
    dmp.DistributedGradientTape(tape).gradient(loss, layer.trainable_variables)
    deeprec.install()
    with deeprec.group_embedding_column_scope():
        pass
    # Collective training averages what several ranks compute. That is its purpose.
    replacements.install(*(part for part in replacements.parts() if not _averages(part)))


def _averages(part):
    return part is Part.COLLECTIVE_TRAINING and communicator().size > 1


def difference(before, after, where=""):
    """Where two results differ; None if they are equal."""
    if isinstance(before, dict) and isinstance(after, dict) and list(before) == list(after):
        found = (difference(before[key], after[key], f"{where} {key}") for key in before)
    elif isinstance(before, (list, tuple)) and type(before) is type(after) and len(before) == len(after):
        found = (difference(*pair, f"{where}[{i}]") for i, pair in enumerate(zip_equal(before, after)))
    else:
        same = type(before) is type(after) and np.array_equal(before, after)
        return None if same else f"{where}: {before!r} became {after!r}"
    return next(filter(None, found), None)


def check_ordinary_programs():
    replacements.uninstall(*replacements.parts())
    before = [program() for program in PROGRAMS]
    keras.backend.clear_session()
    try:
        install_everything()
        keras.backend.clear_session()
        for program, of_program in zip_equal(PROGRAMS, before):
            different = difference(of_program, program(), program.__name__)
            assert different is None, different
    finally:
        replacements.uninstall(*replacements.parts())


def test_on_one_rank():
    check_ordinary_programs()


def test_on_two_ranks():
    ranks.run(check_ordinary_programs, ranks=2)
