"""Fields of DeepRec's ConfigProto: accepted, logged once, kept in copies, gone after `uninstall`."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

from sparse_operation_kit import deeprec
from sparse_operation_kit.deeprec import config_fields

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def installed():
    """Installs the fields, with none logged yet."""
    config_fields._told.clear()
    deeprec.install()
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
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        assert session.run(tf.constant(3) + 4) == 7


def test_sessions_take_them():
    config = v1.ConfigProto()
    options(config).do_smart_stage = True
    options(config).micro_batch_num = 1
    with tf.Graph().as_default():
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
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
    }
    run = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "implementation python" in run.stdout, run.stderr[-2000:]
