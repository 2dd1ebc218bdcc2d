#!/usr/bin/env bash
# Sets up, builds everything and runs the tests, C++ and Python. The last line is `N passed, N failed`, counted
# over test cases; the exit status is 0 if something ran and nothing failed.
#
# Usage: tools/test.sh [--tensorflow VERSION | --python PYTHON] [--device fake_gpu|gpu] [--quick] [--without-horovod]
#                      [TARGET | TEST_FILE | -BAZEL_OPTION]...
#   tools/test.sh                              everything
#   tools/test.sh --quick                      without the tests tagged "slow"
#   tools/test.sh //cc/... tests/tf_saver_test.py  some targets, some files
#   tools/test.sh --tensorflow 2.21.0          in the other environment
#   tools/test.sh --python PYTHON              with the TensorFlow that this Python has
#   tools/test.sh --device fake_gpu            Python tests with their tables on a GPU, that of tests/fake_gpu
#   tools/test.sh --device gpu                 the same on this machine's first GPU
#   tools/test.sh --without-horovod ...        does not install Horovod, which tests of several ranks need
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

take_environment_options "$@"
targets=()
horovod=--horovod
# One more than there are cores, because tests sometimes wait: for processes, disks and other ranks.
jobs=$(($(nproc) + 1))
options=(--keep_going --jobs="$jobs" --local_cpu_resources="$jobs" --show_progress_rate_limit=5)
tags=()
device=
for argument in "${SOK_ARGS[@]}"; do
  if [ "$device" = next ]; then
    device="$argument"
    continue
  fi
  case "$argument" in
    --device) device=next ;;
    --device=*) device="${argument#--device=}" ;;
    --quick) tags+=(-slow) ;;
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
case "$device" in
  '') ;;
  fake_gpu | gpu)
    options+=("--config=$device")
    tags+=(fake_gpu)
    ;;
  *) fail "--device needs fake_gpu or gpu." ;;
esac
# In one option, because Bazel takes only the last.
[ ${#tags[@]} = 0 ] || options+=("--test_tag_filters=$(IFS=,; printf '%s' "${tags[*]}")" --build_tests_only)
# A missing toolkit is an error that says so.
[ "$device" != gpu ] || options+=(--repo_env=SOK_CUDA=1)

"$SOK_ROOT/tools/setup.sh" "$horovod"
if [ ${#targets[@]} = 0 ] && has_old_abi; then
  say "This TensorFlow has an older C++ ABI than GoogleTest's package, and no GPUs: Python tests only."
  # Without the tests in //tools: they test what tools/lint.sh runs, with the newer Python of the default TensorFlow.
  targets=(//tests:all //tools:site //tools:wheel //python/...)
elif [ ${#targets[@]} = 0 ]; then
  targets=(//...)
fi
readarray -t folder_options < <(sok_test_folder_options)
events="$(mktemp)"
trap 'rm -f "$events"' EXIT
# The status is not needed: the events tell which targets failed or did not build.
sok_bazel_test "${options[@]}" "${folder_options[@]}" --build_event_json_file="$events" "${targets[@]}" || true
"$(sok_python)" "$SOK_ROOT/tools/count_tests.py" "$events"
