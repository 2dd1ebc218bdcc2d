"""The writer of other systems' checkpoints writes what these systems write."""

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints
import harness  # noqa: F401 - quiets TensorFlow

v1 = tf.compat.v1


def tensors_of(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype, name
        np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.skipif(foreign_checkpoints.REAL is None, reason="there is no folder shared/data/foreign")
def test_recommenders_addons_as_in_the_real_one(tmp_path):
    real = tensors_of(foreign_checkpoints.REAL / "tfra" / "m")

    def of(tensor):
        return np.concatenate([real[tensor.format(k)] for k in (1, 2)])

    keys = of("users/scope_users_mht_{}of2-keys")
    slots = {f"Adam/{slot}": of(f"{slot}/scope_users_Adam_{slot}_mht_{{}}of2-values") for slot in "mv"}
    rows = foreign_checkpoints.Rows(keys, of("users/scope_users_mht_{}of2-values"), slots)
    powers = {name: real[name] for name in ("beta1_power", "beta2_power")}
    foreign_checkpoints.save(
        tmp_path / "m", {**foreign_checkpoints.tfra("scope/users", rows, shards=2), **powers}
    )
    assert_equal(tensors_of(tmp_path / "m"), real)


@pytest.mark.parametrize("parts", [1, 3])
def test_partitioned_variables_as_tensorflow_saves_them(tmp_path, parts):
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("scope/t", [10, 3], partitioner=v1.fixed_size_partitioner(parts))
        session.run(v1.global_variables_initializer())
        rows = session.run(variable.as_tensor())
        v1.train.Saver().save(session, str(tmp_path / "real"), write_meta_graph=False)
    tensors = foreign_checkpoints.variable("scope/t", rows)
    foreign_checkpoints.save(tmp_path / "ours", foreign_checkpoints.in_slices(tensors, parts))
    files = [(tmp_path / f"{name}.index").read_bytes() for name in ("real", "ours")]
    assert files[0] == files[1]
    assert_equal(tensors_of(tmp_path / "ours"), tensors)


@pytest.mark.parametrize("parts", [None, 1, 2, 5])
def test_deeprecs_offsets_find_each_key_once(parts):
    keys = np.array([5, 1005, -1, 2**40, 999, 0, -(2**63), 2**63 - 1], np.int64)
    values = np.arange(16, dtype=np.float32).reshape(8, 2)
    rows = foreign_checkpoints.Rows(keys, values, {"Adagrad": -values})
    tensors = foreign_checkpoints.deeprec("t", rows, parts)
    found = {}
    for name in ["t"] if parts is None else [f"t/part_{part}" for part in range(parts)]:
        offsets = tensors[f"{name}-partition_offset"]
        assert offsets.shape == (1001,) and offsets.dtype == np.int32
        for remainder in range(1000):
            for row in range(offsets[remainder], offsets[remainder + 1]):
                key = int(tensors[f"{name}-keys"][row])
                assert key % 1000 == remainder and key not in found
                found[key] = tensors[f"{name}-values"][row].tolist()
                assert tensors[f"{name}/Adagrad-values"][row].tolist() == [-one for one in found[key]]
    assert found == dict(zip(keys.tolist(), values.tolist()))
