# Tags: versions
# Not on GPUs: graphs, names and libraries
"""DeepRec's ConfigProto fields and variable_scope.keep_weights: what they do, and gone after `uninstall`."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

import forked
from sparse_operation_kit import deeprec
from sparse_operation_kit.deeprec import config_fields

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def installed():
    """Installs the fields, with none logged yet, and gives each test a graph."""
    config_fields._tell.cache_clear()
    deeprec.install()
    with tf.Graph().as_default():
        yield
    deeprec.install()


def options(config):
    return config.graph_options.optimizer_options


@pytest.mark.parametrize("name", sorted(config_fields.FIELDS["OptimizerOptions"]))
def test_a_field_is_taken_and_logged_once(name, caplog):
    config = v1.ConfigProto()
    assert not getattr(options(config), name)
    for value in (False, True, 1):
        setattr(options(config), name, value)
        assert getattr(options(config), name) == value
        assert getattr(options(v1.ConfigProto()), name) == 0
    assert caplog.text.count(f"DeepRec's {name} in tf.ConfigProto has no effect here: ") == 1


def test_tensorflows_fields_stay_what_they_are():
    config = v1.ConfigProto(inter_op_parallelism_threads=3)
    options(config).do_smart_stage = True
    options(config).opt_level = v1.OptimizerOptions.L0
    options(config).max_folded_constant_in_bytes = 2**40
    config.intra_op_parallelism_threads = 2
    config.device_filters.append("/job:ps")
    config.gpu_options.per_process_gpu_memory_fraction = 0.25
    options(config).do_op_fusion = True
    assert (config.inter_op_parallelism_threads, config.intra_op_parallelism_threads) == (3, 2)
    assert options(config).opt_level == -1 and options(config).max_folded_constant_in_bytes == 2**40
    assert options(config).do_smart_stage == options(config).do_op_fusion == 1
    assert options(config).do_smart_stage_gpu == 0
    with pytest.raises(AttributeError, match="do_smart_stages"):
        options(config).do_smart_stages = True
    with pytest.raises(AttributeError, match="do_smart_stages"):
        assert options(config).do_smart_stages
    with pytest.raises((TypeError, ValueError)):
        config.inter_op_parallelism_threads = "three"


def test_copies_have_the_fields():
    config = v1.ConfigProto()
    options(config).do_smart_stage = True
    merged, copied = v1.ConfigProto(), v1.ConfigProto()
    merged.MergeFrom(config)
    copied.CopyFrom(config)
    parsed = v1.ConfigProto.FromString(config.SerializeToString())
    for one in (merged, copied, parsed, copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert options(one).do_smart_stage == 1
    options(copied).do_smart_stage = False
    assert options(copied).do_smart_stage == 0 and options(config).do_smart_stage == 1


def test_other_messages_have_fields_too():
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.use_multi_stream = rewriter_config_pb2.RewriterConfig.ON
    config.graph_options.rewrite_options.multi_stream_opts.multi_stream_num = 2
    config.gpu_options.cuda_graph_mode_compatible = True
    config.session_stage_subgraph_thread_pool.add()
    config.session_stage_subgraph_thread_pool[0].inter_op_threads_num = 8
    options(config).async_embedding_options.threads_num = 4
    assert len(config.session_stage_subgraph_thread_pool) == 0
    assert list(config.session_stage_subgraph_thread_pool) == []
    assert config.graph_options.rewrite_options.use_multi_stream == 1
    assert config.gpu_options.cuda_graph_mode_compatible == 1
    with v1.Session(config=config) as session:
        assert session.run(tf.constant(3) + 4) == 7


def test_sessions_take_them():
    config = v1.ConfigProto()
    options(config).do_smart_stage = True
    options(config).micro_batch_num = 1
    three = tf.constant(3)
    with v1.train.MonitoredTrainingSession(config=config) as session:
        assert session.run(three) == 3


@pytest.mark.parametrize(("value", "error"), [(2, ValueError), (4, ValueError), ("4", TypeError)])
def test_splitting_the_batch_is_refused(value, error):
    config = v1.ConfigProto()
    with pytest.raises(error, match="micro_batch_num"):
        options(config).micro_batch_num = value
    assert options(config).micro_batch_num == 0
    assert not config.SerializeToString()


def test_uninstalling_takes_them_away():
    config = v1.ConfigProto()
    options(config).do_smart_stage = True
    deeprec.uninstall()
    with pytest.raises(AttributeError):
        options(config).do_smart_stage = True
    with pytest.raises(AttributeError):
        assert options(config).do_smart_stage
    for message in (v1.ConfigProto, v1.OptimizerOptions, v1.GPUOptions, rewriter_config_pb2.RewriterConfig):
        assert "__setattr__" not in vars(message) and "__getattr__" not in vars(message)
    options(config).opt_level = -1
    deeprec.install()
    assert options(config).do_smart_stage == 1 and options(config).opt_level == -1


def test_messages_in_pure_python(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import tensorflow as tf, sparse_operation_kit.deeprec\n"
        "from google.protobuf.internal import api_implementation\n"
        "config = tf.compat.v1.ConfigProto()\n"
        "config.graph_options.optimizer_options.do_smart_stage = True\n"
        "assert config.graph_options.optimizer_options.do_smart_stage == 1\n"
        "print('implementation', api_implementation.Type())\n"
    )
    run = forked.run_interpreter(str(program), PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    assert "implementation python" in run.stdout, run.stderr[-2000:]


def dense(inputs, name, units):
    """A dense layer like `tf.layers.dense`, which Keras 3 does not have."""
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [inputs.shape[-1], units], inputs.dtype)
        bias = v1.get_variable("bias", [units], inputs.dtype, v1.zeros_initializer())
    return tf.matmul(inputs, kernel) + bias


def layers():
    """Functions that create a dense layer: the one above, and TensorFlow's if there is one."""
    try:
        theirs = v1.layers.dense
    except (AttributeError, ImportError):
        return [dense]
    return [dense, lambda inputs, name, units: theirs(inputs, units, name=name)]


@pytest.mark.parametrize("layer", layers())
@pytest.mark.parametrize("parts", [None, 1, 2])
def test_layers_compute_in_bfloat16_on_float32_variables(layer, parts):
    values = np.random.default_rng(1).normal(size=[8, 6]).astype(np.float32)
    partitioner = None if parts is None else v1.fixed_size_partitioner(parts)
    with v1.Session() as session:
        v1.set_random_seed(1)
        scope = v1.variable_scope("dnn", partitioner=partitioner, reuse=v1.AUTO_REUSE)
        with scope.keep_weights(dtype=tf.float32):
            hidden = layer(tf.cast(tf.constant(values), tf.bfloat16), "one", 4)
            outputs = layer(tf.nn.relu(hidden), "two", 2)
        assert hidden.dtype == outputs.dtype == tf.bfloat16
        loss = tf.reduce_mean(tf.square(tf.cast(outputs, tf.float32) - 1))
        step = v1.train.AdamOptimizer(0.01).minimize(loss)
        assert {variable.dtype.base_dtype for variable in v1.trainable_variables()} == {tf.float32}
        kernels = [variable for variable in v1.trainable_variables() if "/one/kernel" in variable.name]
        assert len(kernels) == (parts or 1)
        session.run(v1.global_variables_initializer())
        kernel = np.concatenate(session.run(kernels))
        np.testing.assert_allclose(session.run(tf.cast(hidden, tf.float32)), values @ kernel, atol=0.1)
        losses = [session.run([loss, step])[0] for _ in range(40)]
        assert losses[-1] < losses[0]


def test_small_updates_are_not_lost():
    with v1.Session() as session:
        with v1.variable_scope("kept").keep_weights():
            read = v1.get_variable("weight", [], tf.bfloat16, v1.ones_initializer())
        step = v1.train.GradientDescentOptimizer(1e-4).minimize(tf.cast(read, tf.float32))
        session.run(v1.global_variables_initializer())
        for _ in range(8):
            session.run(step)
        (weight,) = v1.trainable_variables()
        assert session.run(weight) == pytest.approx(1 - 8e-4, abs=1e-6)
        assert session.run(tf.cast(read, tf.float32)) == 1.0


def test_other_variables_stay_what_they_are():
    with v1.variable_scope("kept").keep_weights():
        assert v1.get_variable("large", [2], tf.float64).dtype.base_dtype == tf.float64
        assert v1.get_variable("same", [2]).dtype.base_dtype == tf.float32
        assert v1.get_variable("step", [], tf.int64, trainable=False).dtype.base_dtype == tf.int64
    with v1.variable_scope("plain"):
        assert v1.get_variable("small", [2], tf.bfloat16).dtype.base_dtype == tf.bfloat16


def test_initial_values_are_cast():
    with v1.Session() as session:
        with v1.variable_scope("kept").keep_weights():
            tensor = v1.get_variable("tensor", None, tf.bfloat16, tf.constant([1.5], tf.bfloat16))
            array = v1.get_variable("array", None, tf.float16, np.array([2.5], np.float16))
        assert (tensor.dtype, array.dtype) == (tf.bfloat16, tf.float16)
        assert {variable.dtype.base_dtype for variable in v1.trainable_variables()} == {tf.float32}
        session.run(v1.global_variables_initializer())
        found = session.run([tf.cast(tensor, tf.float32), tf.cast(array, tf.float32)])
        assert [value.tolist() for value in found] == [[1.5], [2.5]]


def test_the_scopes_own_getter_is_called():
    seen = []

    def getter(original, name, *args, **kwargs):
        seen.append(name)
        return original(name, *args, **kwargs)

    with v1.variable_scope("kept", custom_getter=getter).keep_weights():
        with v1.variable_scope("inner", custom_getter=getter):
            value = v1.get_variable("weight", [2], tf.bfloat16)
    assert value.dtype == tf.bfloat16
    assert [variable.dtype.base_dtype for variable in v1.trainable_variables()] == [tf.float32]
    assert seen == ["kept/inner/weight"] * 2


def test_tables_have_float32_rows():
    with v1.variable_scope("kept").keep_weights():
        table = deeprec.get_embedding_variable("table", 4)
        rows = tf.cast(tf.nn.embedding_lookup(table, tf.constant([3], tf.int64)), tf.bfloat16)
        outputs = tf.cast(dense(tf.reshape(rows, [1, 4]), "top", 1), tf.float32)
    step = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(outputs - 20)))
    with v1.train.MonitoredTrainingSession() as session:
        results = [session.run([outputs, step])[0][0, 0] for _ in range(30)]
    assert table.dtype == tf.float32
    # Random weights do not begin near 20.
    assert abs(results[-1] - 20) < abs(results[0] - 20)


def test_only_floating_point_dtypes():
    with pytest.raises(ValueError, match="floating-point dtype, but is int32"):
        v1.variable_scope("kept").keep_weights(tf.int32)


def test_uninstalling_takes_the_method_away():
    deeprec.uninstall()
    assert not hasattr(v1.variable_scope, "keep_weights")
