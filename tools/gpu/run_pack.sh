#!/usr/bin/env bash
# Runs the contents of tools/gpu/pack.sh on a machine with a GPU: the Python tests that can have their tables on a GPU,
# a training of examples/train_ctr.py on GPU and CPU, and benchmarks/lookup_and_step.py.
#
# Usage: run.sh [OUTPUT]
#   OUTPUT  the folder for what they print and measure; $OUT, or `output` beside this file, if not given
#
# Environment: PYTHON  the interpreter (python3)
#              JOBS    files of tests that run at the same time (half of the cores)
#
# The last line is `N passed, N failed`, where each file of tests and each program counts as one. Exit status: 0 if none
# failed; 3 without a device, in which case nothing is run.
set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
output="${1:-${OUT:-$here/output}}"
python="${PYTHON:-python3}"
plugin="$here/bin/tests/fake_gpu/libsok_cuda_plugin.so"
jobs="${JOBS:-$((($(nproc) + 1) / 2))}"
mkdir -p "$output" || exit 1
output="$(cd "$output" && pwd)"
rm -f "$output"/*.result

if [ ! -e "$here/site/.done" ]; then
  rm -rf "$here/site" && mkdir "$here/site"
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$here/site" "$here"/wheels/*.whl || exit 1
  touch "$here/site/.done"
fi
export PYTHONPATH="$here/site:$here/examples:$here/tests" TF_CPP_MIN_LOG_LEVEL=2 SOK_BAZEL_BIN="$here/bin"
cd "$here" || exit 1

step() {  # step NAME SECONDS COMMAND..., whose result goes into a file: several may run at the same time
  local name="$1" seconds="$2" log status start=$SECONDS
  shift 2
  log="$output/$name.log"
  # Its input would be the list of tests.
  timeout --kill-after=10 "$seconds" "$@" < /dev/null > "$log" 2>&1
  status=$?
  case "$status" in
    0) status=passed ;;
    124 | 137) status="FAILED: not done after $seconds s" ;;
    *) status="FAILED: exit status $status" ;;
  esac
  printf '%-36s %4d s  %s; %s\n' "$name" $((SECONDS - start)) "$status" "$(tail -n 1 "$log")" |
    tee "$output/$name.result"
}

# The device of programs. A TensorFlow that was built with CUDA needs no plugin, and ignores the plugin's variable.
cuda="$("$python" -c 'import tensorflow as tf; print(tf.test.is_built_with_cuda())' 2> /dev/null | tail -n 1)"
[ "$cuda" = True ] || export TF_PLUGGABLE_DEVICE_LIBRARY_PATH="$plugin"
if ! "$python" -c 'import sys, tensorflow as tf; sys.exit(not tf.config.list_physical_devices("GPU"))' 2> /dev/null; then
  printf 'TensorFlow finds no GPU: nothing was run. Is there a driver (nvidia-smi), new enough for the toolkit?\n' >&2
  exit 3
fi
if command -v nvidia-smi > /dev/null; then nvidia-smi > "$output/nvidia-smi.txt" 2>&1; fi

# Tests share the GPU. By default TensorFlow would take all of its memory for the first.
export TF_FORCE_GPU_ALLOW_GROWTH=true
while read -r file; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  # The plugin is loaded by the test.
  step "$(basename "$file" .py)" 300 env -u TF_PLUGGABLE_DEVICE_LIBRARY_PATH SOK_TEST_DEVICE=gpu SOK_DEVICE=gpu \
    "$python" tools/run_pytest.py pyproject.toml -q "$file" &
done < gpu_tests
wait
# Alone, because they measure.
for device in gpu cpu; do
  step "train_ctr_$device" 300 "$python" examples/train_ctr.py --device "$device" --epochs 1 --samples 200000 \
    --output_dir "$output/train_ctr_$device"
done
step lookup_and_step_gpu 300 "$python" benchmarks/lookup_and_step.py --device gpu --optimizer lazy_adam --dim 16,64 \
  --json "$output/lookup_and_step_gpu.json"

cat "$output"/*.result > "$output/summary.txt"
rm -f "$output"/*.result
failed="$(grep -c ' FAILED: ' "$output/summary.txt")"
printf '%d passed, %d failed\n' $(($(wc -l < "$output/summary.txt") - failed)) "$failed" | tee -a "$output/summary.txt"
[ "$failed" = 0 ]
