#!/usr/bin/env bash
# Runs the environment's Python with the library of this checkout, after building what has changed:
#   tools/python.sh examples/train_ctr.py --dataset synthetic
#
# Usage: tools/python.sh [PYTHON_ARGUMENT]...
# Environment: SOK_TENSORFLOW  the TensorFlow version
#              SOK_PYTHON      a Python whose TensorFlow is used instead
#              SOK_BUILD=0     does not build (for ranks that a launcher starts: mpirun -np 2 tools/python.sh ...)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

check_tensorflow_version
if [ "${SOK_BUILD:-1}" = 1 ]; then
  "$SOK_ROOT/tools/setup.sh"
  # Shows what is compiled, which may take minutes; nothing if all is built already.
  log="$(mktemp)"
  sok_bazel build --jobs="$(nproc)" --show_progress_rate_limit=10 //tools:site 2>&1 | tee "$log" |
    { grep --line-buffered '\] Compiling' >&2 || true; } || fail "The build failed:" "$(cat "$log")"
  rm -f "$log"
fi
package="$(sok_bazel_link bin)/tools/site"
[ -d "$package" ] || fail "Nothing is built yet: run this once with SOK_BUILD=1."
export PYTHONPATH="$package${PYTHONPATH:+:$PYTHONPATH}"
SOK_BAZEL_BIN="$(sok_bazel_link bin)"
export SOK_BAZEL_BIN
exec "$(sok_python)" "$@"
