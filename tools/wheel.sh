#!/usr/bin/env bash
# Sets up, builds the wheel for one TensorFlow version, copies it to a folder, and prints its path.
#
# Usage: tools/wheel.sh [--tensorflow VERSION | --python PYTHON] [--release] [FOLDER]
#   --release  with kernels for all GPUs from Volta on, by CUDA 12, whose drivers go back to 525: the toolkit of
#              tools/gpu/cuda12.sh. Otherwise for the architectures in SOK_CUDA_ARCHS (90), by the toolkit that is found
#   FOLDER     made if it does not exist; by default dist/ in the checkout
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

take_environment_options "$@"
folder="$SOK_ROOT/dist"
for argument in "${SOK_ARGS[@]}"; do
  case "$argument" in
    -h | --help) print_usage ;;
    --release)
      CUDA_HOME="$("$SOK_ROOT/tools/gpu/cuda12.sh")"
      # Bazel sees these variables.
      export CUDA_HOME SOK_CUDA=1 SOK_CUDA_ARCHS=70,75,80,86,89,90
      ;;
    -*) fail "tools/wheel.sh has no option $argument (see --help)." ;;
    *) folder="$argument" ;;
  esac
done

# With Horovod's source, because the wheel contains the library for several ranks.
"$SOK_ROOT/tools/setup.sh" --horovod-source
say "Building the wheel for TensorFlow $SOK_TENSORFLOW; the first time takes several minutes."
sok_bazel build --jobs="$(nproc)" --noshow_progress //tools:wheel >&2
mkdir -p "$folder"
for wheel in "$(sok_bazel_link bin)"/tools/wheel/*.whl; do
  install -m 644 "$wheel" "$folder/"
  printf '%s\n' "$folder/$(basename "$wheel")"
done
