#!/usr/bin/env bash
# Runs the contents of tools/gpu/pack.sh on a machine with a GPU: the Python tests that can have their tables on a GPU,
# a training of examples/train_ctr.py on GPU and CPU, and benchmarks/lookup_and_step.py.
#
# Usage: run.sh [OUTPUT]
#   OUTPUT  the folder for what they print and measure; $OUT, or `output` beside this file, if not given
#
# Environment: PYTHON  the interpreter (python3)
#
# The last line is `N passed, N failed`, where each file of tests and each program counts as one. Exit status: 0 if none
# failed; 3 without a device, in which case nothing is run.
set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
output="${1:-${OUT:-$here/output}}"
python="${PYTHON:-python3}"
plugin="$here/bin/tests/fake_gpu/libsok_cuda_plugin.so"
passed=0 failed=0 summary=()
mkdir -p "$output" || exit 1
output="$(cd "$output" && pwd)"

if [ ! -e "$here/site/.done" ]; then
  rm -rf "$here/site" && mkdir "$here/site"
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$here/site" "$here"/wheels/*.whl || exit 1
  touch "$here/site/.done"
fi
export PYTHONPATH="$here/site:$here/examples:$here/tests" TF_CPP_MIN_LOG_LEVEL=2 SOK_BAZEL_BIN="$here/bin"
cd "$here" || exit 1

step() {  # step NAME SECONDS COMMAND...
  local name="$1" seconds="$2" log status start=$SECONDS
  shift 2
  log="$output/$name.log"
  # Its input would be the list of tests.
  timeout --kill-after=10 "$seconds" "$@" < /dev/null > "$log" 2>&1
  status=$?
  case "$status" in
    0) passed=$((passed + 1)) status=passed ;;
    124 | 137) failed=$((failed + 1)) status="FAILED: not done after $seconds s" ;;
    *) failed=$((failed + 1)) status="FAILED: exit status $status" ;;
  esac
  summary+=("$(printf '%-36s %4d s  %s; %s' "$name" $((SECONDS - start)) "$status" "$(tail -n 1 "$log")")")
  printf '%s\n' "${summary[-1]}"
}

# The device of programs. A TensorFlow that was built with CUDA needs no plugin, and ignores the plugin's variable.
cuda="$("$python" -c 'import tensorflow as tf; print(tf.test.is_built_with_cuda())' 2> /dev/null | tail -n 1)"
[ "$cuda" = True ] || export TF_PLUGGABLE_DEVICE_LIBRARY_PATH="$plugin"
if ! "$python" -c 'import sys, tensorflow as tf; sys.exit(not tf.config.list_physical_devices("GPU"))' 2> /dev/null; then
  printf 'TensorFlow finds no GPU: nothing was run. Is there a driver (nvidia-smi), new enough for the toolkit?\n' >&2
  exit 3
fi
if command -v nvidia-smi > /dev/null; then nvidia-smi > "$output/nvidia-smi.txt" 2>&1; fi

while read -r file; do
  # The plugin is loaded by the test.
  step "$(basename "$file" .py)" 300 env -u TF_PLUGGABLE_DEVICE_LIBRARY_PATH SOK_TEST_DEVICE=gpu SOK_DEVICE=gpu \
    "$python" tools/run_pytest.py pyproject.toml -q "$file"
done < gpu_tests
for device in gpu cpu; do
  step "train_ctr_$device" 300 "$python" examples/train_ctr.py --device "$device" --epochs 1 --samples 200000 \
    --output_dir "$output/train_ctr_$device"
done
step lookup_and_step_gpu 300 "$python" benchmarks/lookup_and_step.py --device gpu --optimizer lazy_adam --dim 16,64 \
  --json "$output/lookup_and_step_gpu.json"

printf '%s\n' "${summary[@]}" > "$output/summary.txt"
printf '%d passed, %d failed\n' "$passed" "$failed" | tee -a "$output/summary.txt"
[ "$failed" = 0 ]
