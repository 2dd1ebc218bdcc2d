"""Layers, lookups, gradients and checkpoints work in scripts that disable TensorFlow's v2 behavior."""

import os
import pathlib
import re
import sys

import forked

PROGRAM = pathlib.Path(__file__).with_name("v1_behavior_program.py")


def test_all_checks_pass_without_v2_behavior():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = forked.run(PROGRAM, env=environment, timeout=240)
    assert run.returncode == 0, run.stderr[-3000:]
    checks = re.findall(r"^def (check_\w+)", PROGRAM.read_text(), re.MULTILINE)
    assert len(checks) >= 7
    assert re.findall(r"^passed (\w+)", run.stdout, re.MULTILINE) == sorted(checks)
