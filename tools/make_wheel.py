"""Writes the wheel: the package's files, its metadata and the RECORD of both (wheel format 1.0).

The op library in the wheel works with one minor version of TensorFlow, which is in the wheel's local version
(0.1.0+tf2.15). The wheel does not require TensorFlow: several distributions provide it (tensorflow,
tensorflow-cpu, ...), and pip might install a second one over the user's.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import sysconfig
import zipfile

NAME = "sparse_operation_kit"

# The lowest Python version of a wheel, by TensorFlow's major version: `tools/test_wheel.sh --python PYTHON`
# tests it. ruff checks the syntax (pyproject.toml). The highest version is that of TensorFlow's wheels.
LOWEST_PYTHON = {"1": "3.7", "2": "3.10"}

METADATA = """\
Metadata-Version: 2.1
Name: sparse-operation-kit
Version: {version}
Summary: Sparse embedding tables, sharded over Horovod ranks, for graph-mode TensorFlow {minor}
License: Apache-2.0
Requires-Python: >={python}
Requires-External: TensorFlow (=={minor}.*)
Requires-Dist: numpy
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: sparse-operation-kit
Root-Is-Purelib: false
Tag: {tag}
"""


def package_version(files: dict[str, str]) -> str:
    """The version that the package states in its `_version.py`."""
    with open(files[f"{NAME}/_version.py"], encoding="utf-8") as source:
        return re.search(r'^__version__ = "([^"]+)"', source.read(), re.MULTILINE).group(1)


def record_line(path: str, contents: bytes) -> str:
    """One line of RECORD: path, digest and size."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(contents)}"


def write_wheel(path: str, contents: dict[str, bytes], record: str) -> None:
    """Writes `contents` and their RECORD, the same bytes for the same contents."""
    lines = [record_line(name, data) for name, data in contents.items()] + [f"{record},,", ""]
    contents = {**contents, record: "\n".join(lines).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name)  # dated 1980
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)


def main(folder: str, tensorflow: str, license_path: str, readme_path: str, pairs: list[str]) -> None:
    """Writes the wheel to `folder`; `pairs` are its files, as PATH_IN_WHEEL=FILE."""
    files = dict(sorted(pair.split("=", 1) for pair in pairs))
    minor = ".".join(tensorflow.split(".")[:2])
    version = f"{package_version(files)}+tf{minor}"
    tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    info = f"{NAME}-{version}.dist-info"

    def read(path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    contents = {path: read(file) for path, file in files.items()}
    readme = read(readme_path).decode()
    metadata = METADATA.format(
        version=version, minor=minor, python=LOWEST_PYTHON[tensorflow[0]], readme=readme
    )
    contents[f"{info}/METADATA"] = metadata.encode()
    contents[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    contents[f"{info}/LICENSE"] = read(license_path)
    write_wheel(f"{folder}/{NAME}-{version}-{tag}.whl", contents, f"{info}/RECORD")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if len(arguments) == 1 and arguments[0].startswith("@"):
        with open(arguments[0][1:], encoding="utf-8") as parameters:
            arguments = parameters.read().splitlines()
    main(*arguments[:4], arguments[4:])
