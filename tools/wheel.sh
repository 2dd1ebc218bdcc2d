#!/usr/bin/env bash
# Sets up, builds the wheel for one TensorFlow version, copies it to a folder, and prints its path.
#
# Usage: tools/wheel.sh [--tensorflow VERSION | --python PYTHON] [FOLDER]
#   FOLDER  made if it does not exist; by default dist/ in the checkout
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

take_environment_options "$@"
case "${SOK_ARGS[*]}" in
  -h | --help)
    print_usage
    exit 0
    ;;
  -*) fail "tools/wheel.sh has no option ${SOK_ARGS[*]} (see --help)." ;;
esac
folder="${SOK_ARGS[0]:-$SOK_ROOT/dist}"

# With Horovod's source, because the wheel contains the library for several ranks.
"$SOK_ROOT/tools/setup.sh" --horovod-source
say "Building the wheel for TensorFlow $SOK_TENSORFLOW; the first time takes several minutes."
sok_bazel build --jobs="$(nproc)" --noshow_progress //tools:wheel >&2
mkdir -p "$folder"
for wheel in "$(sok_bazel_link bin)"/tools/wheel/*.whl; do
  install -m 644 "$wheel" "$folder/"
  printf '%s\n' "$folder/$(basename "$wheel")"
done
