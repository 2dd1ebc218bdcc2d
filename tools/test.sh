#!/usr/bin/env bash
# Sets up, builds everything and runs the tests, C++ and Python. The last line is `N passed, N failed`, counted
# over test cases; the exit status is 0 if something ran and nothing failed.
#
# Usage: tools/test.sh [--tensorflow VERSION | --python PYTHON] [--all | --device fake_gpu|gpu | --tagged TAG]
#                      [--without-horovod] [TARGET | TEST_FILE | -BAZEL_OPTION]...
#   tools/test.sh                              all tests but the slow ones, and those of examples/ and benchmarks/
#   tools/test.sh --all                        all tests
#   tools/test.sh --tagged versions            the Python tests with this tag (tests/README.md)
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
all= device= tag=
set -- "${SOK_ARGS[@]}"
while [ $# -gt 0 ]; do
  argument="$1"
  shift
  case "$argument" in
    --device | --tagged)
      [ $# -gt 0 ] || fail "$argument needs a value (see --help)."
      set -- "$argument=$1" "${@:2}"
      ;;
    --device=*) device="${argument#*=}" ;;
    --tagged=*) tag="${argument#*=}" ;;
    --all) all=1 ;;
    --without-horovod) horovod=--horovod-source ;;
    -h | --help) print_usage ;;
    -*) options+=("$argument") ;;
    *.py) targets+=("//$(dirname "$argument"):$(basename "$argument" .py)") ;;
    *) targets+=("$argument") ;;
  esac
done
case "$device" in
  '') ;;
  fake_gpu | gpu)
    options+=("--config=$device")
    [ ${#targets[@]} != 0 ] || readarray -t targets < <(sok_tests_on_gpus)
    ;;
  *) fail "--device needs fake_gpu or gpu." ;;
esac
if [ -n "$tag" ]; then
  readarray -t -O ${#targets[@]} targets < <(sok_tests_tagged "$tag")
  [ ${#targets[@]} != 0 ] || fail "No test has the tag $tag."
fi
# A missing toolkit is an error that says so.
[ "$device" != gpu ] || options+=(--repo_env=SOK_CUDA=1)

"$SOK_ROOT/tools/setup.sh" "$horovod"
if [ ${#targets[@]} = 0 ]; then
  if has_old_abi; then
    say "This TensorFlow has an older C++ ABI than GoogleTest's package, and no GPUs: Python tests only."
    # Without the tests in //tools: they test what tools/lint.sh runs, with the newer Python of the default TensorFlow.
    targets=(//tests:all //tools:site //tools:wheel //python/...)
  else
    targets=(//...)
  fi
  if [ -z "$all" ]; then
    # A file of Python tests says that it is slow in its first lines, which Bazel does not read.
    options=(--test_tag_filters=-programs,-slow "${options[@]}")
    readarray -t -O ${#targets[@]} targets < <(sok_tests_tagged slow | sed 's/^/-/')
  fi
fi
readarray -t folder_options < <(sok_test_folder_options)
events="$(mktemp)"
trap 'rm -f "$events"' EXIT
# The status is not needed: the events tell which targets failed or did not build.
sok_bazel_test "${options[@]}" "${folder_options[@]}" --build_event_json_file="$events" -- "${targets[@]}" || true
"$(sok_python)" "$SOK_ROOT/tools/count_tests.py" "$events"
