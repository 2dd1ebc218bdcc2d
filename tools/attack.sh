#!/usr/bin/env bash
# Attacks checkpoints for a while: kills processes during saves, damages files, and tries malicious
# paths. Ends with a summary of the attacks and the data lost; the exit status is 0 if no data was lost.
#
# Usage: tools/attack.sh [--seconds N] [--only SCENARIO]... [--seed N]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

case "${1:-}" in
  -h | --help)
    print_usage
    exit 0
    ;;
esac
"$SOK_ROOT/tools/setup.sh"
sok_bazel build --jobs="$(nproc)" //tools:site > /dev/null 2>&1 ||
  fail "The build failed: bazel build //tools:site"
export PYTHONPATH="$SOK_ROOT/tests${PYTHONPATH:+:$PYTHONPATH}"
SOK_BUILD=0 exec "$SOK_ROOT/tools/python.sh" -m attack "$@"
