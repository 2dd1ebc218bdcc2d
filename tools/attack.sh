#!/usr/bin/env bash
# Attacks checkpoints for a while: kills processes that save, damages files, feeds manifests and paths that mean
# harm. Ends with what was tried and what was lost; the exit status is 0 where that is nothing.
#
# Usage: tools/attack.sh [--seconds N] [--only SCENARIO]... [--seed N]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

"$SOK_ROOT/tools/setup.sh"
sok_bazel build --jobs="$(nproc)" //cc/checkpoint:check_manifests //tools:site > /dev/null 2>&1 ||
  fail "The build failed: bazel build //cc/checkpoint:check_manifests //tools:site"
export PYTHONPATH="$SOK_ROOT/tests${PYTHONPATH:+:$PYTHONPATH}"
SOK_BUILD=0 exec "$SOK_ROOT/tools/python.sh" -m attack "$@"
