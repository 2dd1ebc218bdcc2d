#!/usr/bin/env bash
# Packs what a machine with a GPU needs to run the Python tests, examples/train_ctr.py and benchmarks/lookup_and_step.py
# with tables on its GPU, if the machine has neither TensorFlow nor a network: pieces to carry there one by one.
#
# Usage: tools/gpu/pack.sh [--tensorflow VERSION] [--python X.Y] [--cuda-wheel] [FOLDER]
#   --python X.Y   the Python of that machine; 3.11 if not given. TensorFlow must have a wheel for it
#   --cuda-wheel   TensorFlow's CUDA wheel with CUDA's libraries, several GB. Without it, a TensorFlow for CPUs, which has
#                  the GPU through a plugin (tests/fake_gpu); dense layers then run on the CPU
#   FOLDER         gpu_pack if not given
#
# The machine needs that Python with pip, and a driver for the CUDA version of the toolkit that builds here: CUDA_HOME, if set, as
# of tools/gpu/cuda12.sh. SOK_CUDA_ARCHS lists the architectures (90).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

# Uploads to such machines are often limited in size.
readonly PIECE=58M
readonly PLATFORMS=(manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64
  manylinux_2_12_x86_64 manylinux2010_x86_64 manylinux_2_5_x86_64 manylinux1_x86_64)

take_tensorflow_option "$@"
version=3.11 package=tensorflow-cpu folder="$SOK_ROOT/gpu_pack"
set -- "${SOK_ARGS[@]}"
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) print_usage ;;
    --python)
      version="${2:?--python needs a version, such as 3.12}"
      shift
      ;;
    --cuda-wheel) package='tensorflow[and-cuda]' ;;
    -*) fail "tools/gpu/pack.sh has no option $1 (see --help)." ;;
    *) folder="$1" ;;
  esac
  shift
done

build() {  # into $stage
  # Bazel sees this variable: a missing toolkit is an error that says so.
  export SOK_CUDA=1
  mkdir -p "$stage/wheels" "$stage/bin/tests/fake_gpu"
  "$SOK_ROOT/tools/wheel.sh" --tensorflow "$SOK_TENSORFLOW" "$stage/wheels"
  sok_bazel build --jobs="$(nproc)" --noshow_progress //tests/fake_gpu:libsok_cuda_plugin.so
  install -m 755 "$(sok_bazel_link bin)/tests/fake_gpu/libsok_cuda_plugin.so" "$stage/bin/tests/fake_gpu/"
  # Tests that start ranks need Horovod, which the machine would have to compile.
  sok_tests_on_gpus | sed 's#^//\(.*\):\(.*\)$#\1/\2.py#' |
    (cd "$SOK_ROOT" && xargs grep -LE '^(import|from) (ranks|example_support)\b') > "$stage/gpu_tests"
}

download() {  # the Python packages of the tests, into $stage/wheels
  local options=(--only-binary=:all: --python-version "$version" --implementation cp) platform
  for platform in "${PLATFORMS[@]}"; do options+=(--platform "$platform"); done
  # The pinned versions are for Python 3.11.
  [ "$version" != 3.11 ] || options+=(-c "$SOK_ROOT/tools/requirements/constraints-$SOK_TENSORFLOW.txt")
  say "Downloading $package $SOK_TENSORFLOW and what it and the tests need, for Python $version"
  "$(sok_python)" -m pip download --disable-pip-version-check --quiet "${options[@]}" --dest "$stage/wheels" \
    "$package==$SOK_TENSORFLOW" pytest hypothesis matplotlib tqdm ||
    fail "pip has no wheels of $package $SOK_TENSORFLOW for Python $version. TensorFlow 2.15 has none beyond 3.11."
  # Without dependencies, as in tools/setup.sh's environments: Keras 2 names another wheel of TensorFlow.
  local alone="$SOK_ROOT/tools/requirements/no-deps-$SOK_TENSORFLOW.txt"
  [ ! -e "$alone" ] ||
    "$(sok_python)" -m pip download --disable-pip-version-check --quiet "${options[@]}" --dest "$stage/wheels" \
      --no-deps -r "$alone" || fail "pip has no wheels of what $alone names."
}

copy_programs() {
  local path
  for path in tests examples benchmarks pyproject.toml tools/run_pytest.py tools/fork_server.py tools/gpu/check.py; do
    (cd "$SOK_ROOT" && git ls-files -z -- "$path" | xargs -0 cp --parents -t "$stage")
  done
  install -m 755 "$SOK_ROOT/tools/gpu/run.sh" "$stage/run.sh"
}

"$SOK_ROOT/tools/setup.sh" --horovod-source
stage="$(mktemp -d)"
trap 'rm -rf "$stage"' EXIT
build
download
copy_programs
mkdir -p "$folder"
rm -f "$folder"/piece.*
tar -C "$stage" -c . | split -b "$PIECE" -d -a 3 - "$folder/piece."
say "$folder: $(find "$folder" -name 'piece.*' | wc -l) pieces of at most $PIECE. On the machine, with all of them in one folder:" \
  "mkdir pack && cat piece.* | tar -x -C pack && pack/run.sh OUTPUT"
