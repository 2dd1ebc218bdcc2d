"""Compares the engine's reader of manifests with the one in Python."""

from __future__ import annotations

import os
import pathlib
import struct
import subprocess

from same_length import zip_equal
from sparse_operation_kit.checkpoint import CheckpointError, manifest


def engine_verdicts(texts: list[bytes]) -> list[str]:
    """The engine's verdict on each manifest: "good", or an error message."""
    program = pathlib.Path(os.environ.get("SOK_BAZEL_BIN", "."), "cc/checkpoint/check_manifests")
    given = b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    output = subprocess.run([program], input=given, stdout=subprocess.PIPE, check=True, timeout=300).stdout
    verdicts = output.decode().splitlines()
    assert len(verdicts) == len(texts)
    return verdicts


def python_verdict(text: bytes) -> str:
    """The verdict of the reader in Python."""
    try:
        manifest.parse(text, pathlib.Path("manifest.json"))
    except CheckpointError as error:
        return str(error)
    return "good"


def compare(cases: list[tuple[str, bytes]]) -> tuple[int, int]:
    """Checks that both readers agree on each (description, text); returns (number of good, number of bad)."""
    verdicts = engine_verdicts([text for _, text in cases])
    differ, good = [], 0
    for (what, text), engine in zip_equal(cases, verdicts):
        python = python_verdict(text)
        good += engine == "good"
        if (python == "good") != (engine == "good"):
            differ.append(f"{what}\n    engine: {engine[:300]}\n    Python: {python[:300]}")
    assert not differ, "\n".join([f"{len(differ)} of {len(cases)}:", *differ[:20]])
    return good, len(cases) - good
