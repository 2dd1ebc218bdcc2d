#!/usr/bin/env bash
# Builds the programs of the CUDA engine that need only a driver, engine_test and engine_benchmark, into a folder to
# carry to a machine with a GPU; or runs what is in that folder, which its run.sh does without this checkout.
#
# Usage: tools/gpu/programs.sh build [FOLDER]
#        tools/gpu/programs.sh run [FOLDER [OUTPUT]]
#   FOLDER  gpu_programs if not given: both programs, stripped, and run.sh
#   OUTPUT  for what they print and measure; $OUT, or FOLDER/output, if not given
#
# `build` needs a CUDA toolkit, `run` only a driver of its version or a newer one.
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
  install -m 755 "$SOK_ROOT/tools/gpu/run_programs.sh" "$folder/run.sh"
  mebibytes="$(du -sm --apparent-size "$folder" | cut -f1)"
  [ "$mebibytes" -le "$MOST_MEBIBYTES" ] ||
    fail "$folder takes $mebibytes MiB, more than $MOST_MEBIBYTES: build for fewer architectures (SOK_CUDA_ARCHS=90)."
  say "$folder: $mebibytes MiB. On a machine with a GPU: $folder/run.sh OUTPUT"
}

command="${1:-}"
folder="${2:-$SOK_ROOT/gpu_programs}"
case "$command" in
  build) build "$folder" ;;
  run)
    [ -x "$folder/run.sh" ] || fail "There is no $folder/run.sh: run tools/gpu/programs.sh build first."
    exec "$folder/run.sh" ${3:+"$3"}
    ;;
  -h | --help) print_usage ;;
  *) fail "Usage: tools/gpu/programs.sh build [FOLDER] | run [FOLDER [OUTPUT]] (see --help)." ;;
esac
