#!/usr/bin/env bash
# Runs the C++ tests, and those of CUDA kernels on the host, under AddressSanitizer and UndefinedBehaviorSanitizer, and
# those tagged "parallel" under ThreadSanitizer. The last line is `N passed, N failed`.
#
# Usage: tools/sanitize.sh [--tensorflow VERSION] [TARGET | -BAZEL_OPTION]...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

take_tensorflow_option "$@"
arguments=("${SOK_ARGS[@]}")
case " ${arguments[*]} " in
  *" -h "* | *" --help "*) print_usage ;;
  *" //"*) ;;
  *) arguments+=(//cc/... //cuda/... //sok_ops/...) ;;
esac

"$SOK_ROOT/tools/setup.sh"
readarray -t folder_options < <(sok_test_folder_options)
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

sanitized_tests() {  # sanitized_tests asan|tsan OPTION...
  say "Tests under $1"
  # Bazel writes no file if it refuses the arguments.
  touch "$folder/$1"
  # Only C++ tests: for Python tests, Bazel would build with the sanitizer all that they read and all that nvcc compiles.
  sok_bazel test --config="$1" --keep_going --jobs="$(nproc)" --build_tests_only --show_progress_rate_limit=5 \
    --test_lang_filters=cc --build_event_json_file="$folder/$1" "${folder_options[@]}" "${@:2}" "${arguments[@]}" || true
}

# Address randomization could put a library where ThreadSanitizer needs its shadow memory.
fixed_addresses=()
if setarch "$(uname -m)" --addr-no-randomize true 2> /dev/null; then
  fixed_addresses=(--run_under="setarch $(uname -m) --addr-no-randomize")
fi

# What nvcc compiles cannot be sanitized, and all tests of an engine on the host would take too long.
sanitized_tests asan --test_tag_filters=-device,-unsanitized
sanitized_tests tsan --test_tag_filters=parallel,-device,-unsanitized "${fixed_addresses[@]}"
"$(sok_python)" "$SOK_ROOT/tools/count_tests.py" "$folder/asan" "$folder/tsan"
