#!/usr/bin/env bash
# Lets every call about files fail once, during saves, restores and exports: see tests/failing_calls/README.md. The
# last line is `N passed, N failed`, counted over cases; the exit status is 0 if none failed.
#
# Usage: tools/failing_calls.sh [--only SCENARIO]... [--kind KIND]... [--without-kills] [--sample N]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

case "${1:-}" in
  -h | --help) print_usage ;;
esac
"$SOK_ROOT/tools/setup.sh"
sok_bazel build --jobs="$(nproc)" //tools:site //tests/failing_calls:libfailing_calls.so > /dev/null 2>&1 ||
  fail "The build failed: bazel build //tools:site //tests/failing_calls:libfailing_calls.so"
export PYTHONPATH="$SOK_ROOT/tests${PYTHONPATH:+:$PYTHONPATH}"
[ ! -w /dev/shm ] || export TMPDIR=/dev/shm
SOK_BUILD=0 exec "$SOK_ROOT/tools/python.sh" -m failing_calls "$@"
