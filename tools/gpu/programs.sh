#!/usr/bin/env bash
# Builds the programs of the CUDA engine that need only a driver, engine_test and engine_benchmark, into a folder to
# carry to a machine with a GPU, where its run.sh runs them.
#
# Usage: tools/gpu/programs.sh build [FOLDER]
#   FOLDER  gpu_programs if not given: both programs, stripped, and run.sh
#
# It needs a CUDA toolkit, and that machine a driver of the toolkit's version or a newer one. SOK_CUDA_ARCHS lists the
# architectures (90).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

PROGRAMS=(engine_test engine_benchmark)
# Uploads to such machines are often limited in size.
MOST_MEBIBYTES=60

build() {  # build FOLDER
  local folder="$1" program mebibytes
  "$SOK_ROOT/tools/setup.sh"
  # With SOK_CUDA=1 a missing toolkit is an error that says so.
  sok_bazel build --repo_env=SOK_CUDA=1 --jobs="$(nproc)" "${PROGRAMS[@]/#/\/\/cuda/programs:}"
  mkdir -p "$folder"
  for program in "${PROGRAMS[@]}"; do
    strip -o "$folder/$program" "$(sok_bazel_link bin)/cuda/programs/$program"
    chmod 755 "$folder/$program"
  done
  install -m 755 "$SOK_ROOT/tools/gpu/run.sh" "$folder/run.sh"
  mebibytes="$(du -sm --apparent-size "$folder" | cut -f1)"
  [ "$mebibytes" -le "$MOST_MEBIBYTES" ] ||
    fail "$folder takes $mebibytes MiB, more than $MOST_MEBIBYTES: build for fewer architectures (SOK_CUDA_ARCHS)."
  say "$folder: $mebibytes MiB. On a machine with a GPU: $folder/run.sh OUTPUT"
}

case "${1:-}" in
  build) build "${2:-$SOK_ROOT/gpu_programs}" ;;
  -h | --help) print_usage ;;
  *) fail "Usage: tools/gpu/programs.sh build [FOLDER] (see --help)." ;;
esac
