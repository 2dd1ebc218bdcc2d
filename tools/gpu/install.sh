#!/usr/bin/env bash
# Builds the library with kernels for GPUs, installs it for an interpreter that has TensorFlow's CUDA wheel, and trains a
# small table on the GPU and on the CPU to compare the two.
#
# Usage: tools/gpu/install.sh [PYTHON]
#   PYTHON  the interpreter; `python3` if not given. Its packages must be writable, as in a virtual environment
#
# It needs a CUDA toolkit to build and, to use the GPU, a driver for the toolkit's version of CUDA. SOK_CUDA_ARCHS lists
# the architectures: if it is not set, those of this machine's GPUs.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

case "${1:-}" in
  -h | --help) print_usage ;;
esac
python="$(command -v "${1:-python3}")" || fail "There is no interpreter ${1:-python3}."

# Prints TensorFlow's version, and the version of CUDA that it was built with.
readonly ASK='
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
print(tf.__version__, tf.sysconfig.get_build_info().get("cuda_version", "none"))'
answer="$("$python" -c "$ASK" 2> /dev/null | tail -n 1)" || fail "$python cannot import TensorFlow."
read -r SOK_TENSORFLOW cuda <<< "$answer"
[ "$cuda" != none ] ||
  fail "The TensorFlow $SOK_TENSORFLOW of $python was built for CPUs. Install the package \`tensorflow\`, not" \
    "\`tensorflow-cpu\`, or see \"A TensorFlow for CPUs\" in docs/gpu.md."
check_tensorflow_version

say "TensorFlow $SOK_TENSORFLOW of $python was built with CUDA $cuda."
if [ -z "${SOK_CUDA_ARCHS:-}" ] && command -v nvidia-smi > /dev/null; then
  # Of the form 8.6. A driver that does not answer leaves the default.
  SOK_CUDA_ARCHS="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | tr -d . | grep -xE '[0-9]+' |
    sort -nu | paste -sd, || true)"
  [ -z "$SOK_CUDA_ARCHS" ] || export SOK_CUDA_ARCHS
fi
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
# With SOK_CUDA=1 a missing toolkit is an error that says so.
wheel="$(SOK_CUDA=1 "$SOK_ROOT/tools/wheel.sh" --tensorflow "$SOK_TENSORFLOW" "$folder")"
"$python" -m pip install --disable-pip-version-check --no-deps --force-reinstall "$wheel"
(cd "$folder" && "$python" "$SOK_ROOT/tools/gpu/check.py")
