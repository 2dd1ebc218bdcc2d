"""Importing the library prints nothing, sets no environment variable and leaves TensorFlow as it was."""

import os
import subprocess
import sys

# Runs in its own process. TensorFlow is imported before the snapshot, because its effects are not ours.
_PROGRAM = """
import inspect, os, sys, tempfile
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
tf.keras.optimizers, tf.compat.v1.train.Optimizer, tf.nn.embedding_lookup

def snapshot():
    found = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] not in ("tensorflow", "keras", "tf_keras"):
            continue
        for name, value in list(vars(module).items()):
            if inspect.isfunction(value) or inspect.isclass(value):
                found[module_name, name] = value
            if inspect.isclass(value) and value.__module__.startswith(("tensorflow", "keras", "tf_keras")):
                for attribute, member in list(vars(value).items()):
                    if inspect.isfunction(member) or isinstance(member, property):
                        found[value, attribute] = member
    return found

before = snapshot()
environment = dict(os.environ)
with tempfile.TemporaryFile() as printed:
    kept = os.dup(1), os.dup(2)
    os.dup2(printed.fileno(), 1), os.dup2(printed.fileno(), 2)
    import sparse_operation_kit
    sys.stdout.flush(), sys.stderr.flush()
    os.dup2(kept[0], 1), os.dup2(kept[1], 2)
    printed.seek(0)
    assert printed.read() == b"", "importing prints"
assert dict(os.environ) == environment, "importing changes the environment"
after = snapshot()
known_owners = {owner for owner, _ in before}
changed = [key for key in before if after.get(key) is not before[key]]
added = [key for key in after if key not in before and key[0] in known_owners and inspect.isclass(key[0])]
assert not changed, f"importing replaces {changed}"
assert not added, f"importing adds {added}"
assert len(before) > 1000
print("as it was")
"""


def test_importing_has_no_side_effects():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip() == "as it was"
