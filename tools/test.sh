#!/usr/bin/env bash
# Sets up, builds everything and runs the tests, C++ and Python. The last line is `N passed, N failed`, counted
# over test cases; the exit status is 0 if something ran and nothing failed.
#
# Usage: tools/test.sh [--tensorflow VERSION] [--quick] [--without-horovod] [TARGET | TEST_FILE | -BAZEL_OPTION]...
#   tools/test.sh                              everything
#   tools/test.sh --quick                      without the tests tagged "slow"
#   tools/test.sh //cc/... tests/saver_test.py  some targets, some files
#   tools/test.sh --tensorflow 2.21.0          in the other environment
#   tools/test.sh --without-horovod ...        does not install Horovod, which tests of several ranks need
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

take_tensorflow_option "$@"
targets=()
horovod=--horovod
# One more than there are cores, as tests wait now and then: for processes, disks and other ranks.
jobs=$(($(nproc) + 1))
options=(--keep_going --jobs="$jobs" --local_cpu_resources="$jobs" --show_progress_rate_limit=5)
for argument in "${SOK_ARGS[@]}"; do
  case "$argument" in
    --quick) options+=(--test_tag_filters=-slow --build_tests_only) ;;
    --without-horovod) horovod=--horovod-source ;;
    -h | --help)
      print_usage
      exit 0
      ;;
    -*) options+=("$argument") ;;
    *.py) targets+=("//$(dirname "$argument"):$(basename "$argument" .py)") ;;
    *) targets+=("$argument") ;;
  esac
done
[ ${#targets[@]} -gt 0 ] || targets=(//...)

"$SOK_ROOT/tools/setup.sh" "$horovod"
events="$(mktemp)"
trap 'rm -f "$events"' EXIT
# The status is not needed: the events tell which targets failed or did not build.
sok_bazel_test "${options[@]}" --build_event_json_file="$events" "${targets[@]}" || true
"$(sok_python)" "$SOK_ROOT/tools/count_tests.py" "$events"
