#!/usr/bin/env bash
# Runs, on a machine with a GPU and without this checkout, what is beside it:
#   from tools/gpu/programs.sh  engine_test, some of its tests under compute-sanitizer where that is found, and
#                               engine_benchmark, within ten minutes
#   from tools/gpu/pack.sh      a comparison of GPU and CPU, the Python tests that can have their tables on a GPU, a training
#                               of examples/train_ctr.py on both, and benchmarks/lookup_and_step.py
#
# Usage: run.sh [OUTPUT]
#   OUTPUT  the folder for what they print and measure; $OUT, or `output` beside this file, if not given
#
# Environment, with programs: ENGINE_TEST_FLAGS       of engine_test (--large --gtest_brief=1)
#                             SANITIZED_TESTS         the tests that run under compute-sanitizer, in the form of
#                                                     --gtest_filter
#                             ENGINE_BENCHMARK_FLAGS  of engine_benchmark (--seconds=130)
#              with a pack:   PYTHON                  the interpreter (python3)
#                             JOBS                    files of tests that run at the same time (half of the cores)
#
# The last line is `N passed, N failed`, where each program, each tool and each file of tests counts as one. Exit status:
# 0 if none failed; 3 without a device, in which case nothing is run.
set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
output="${1:-${OUT:-$here/output}}"
# Where the output of what runs is shown, once it has ended.
exec 3> /dev/null

begin() {
  mkdir -p "$output" && output="$(cd "$output" && pwd)" || exit 1
  summary="$output/summary.txt"
  : > "$summary" || exit 1
  if command -v nvidia-smi > /dev/null; then
    nvidia-smi > "$output/nvidia-smi.txt" 2>&1
    nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,ECC >> "$output/nvidia-smi.txt" 2>&1
  fi
}

step() {  # step NAME SECONDS COMMAND..., of which several may run at the same time
  local name="$1" seconds="$2" log status start=$SECONDS
  shift 2
  log="$output/$name.log"
  printf '\n===== %s: %s\n' "$name" "$*" >&3
  # Its input would be the list of tests.
  timeout --kill-after=10 "$seconds" "$@" < /dev/null > "$log" 2>&1
  status=$?
  cat "$log" >&3
  case "$status" in
    0) status=passed ;;
    124 | 137) status="FAILED: not done after $seconds s" ;;
    *) status="FAILED: exit status $status" ;;
  esac
  printf '%-36s %4d s  %s; %s\n' "$name" $((SECONDS - start)) "$status" "$(tail -n 1 "$log")" | tee -a "$summary"
}

run_programs() {
  local test_flags benchmark_flags sanitizer tool
  local sanitized="${SANITIZED_TESTS:-KeyIndexTest.*:DedupTest.*:SegmentsTest.*:BagsTest.*:PoolTest.*:GradientSumsTest.*:KeyDirectoryTest.*:GpuEqualsCpuTest.*}"
  read -ra test_flags <<< "${ENGINE_TEST_FLAGS:---large --gtest_brief=1}"
  read -ra benchmark_flags <<< "${ENGINE_BENCHMARK_FLAGS:---seconds=130}"
  if ! "$here/engine_test" --need_device '--gtest_filter=-*'; then
    printf 'There is no CUDA device that these programs can use: nothing was run.\n' >&2
    exit 3
  fi
  begin
  exec 3>&1
  step engine_test 230 "$here/engine_test" "${test_flags[@]}" "--gtest_output=xml:$output/engine_test.xml"
  sanitizer="$(find_sanitizer)"
  if [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck initcheck synccheck; do
      # Tests cause API errors on purpose.
      step "$tool" 40 "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 \
        "$here/engine_test" --small --gtest_brief=1 "--gtest_filter=$sanitized"
    done
  else
    printf 'compute-sanitizer: left out, as it was not found\n' >> "$summary"
  fi
  step engine_benchmark 180 "$here/engine_benchmark" "--json=$output/benchmark.json" "${benchmark_flags[@]}"
  printf '\n'
  cat "$summary"
}

find_sanitizer() {
  local path
  for path in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
    "${CUDA_HOME:-/usr/local/cuda}/compute-sanitizer/compute-sanitizer"; do
    [ -x "$path" ] && printf '%s' "$path" && return
  done
}

run_pack() {
  local python="${PYTHON:-python3}" jobs="${JOBS:-$((($(nproc) + 1) / 2))}" cuda file device
  if [ ! -e "$here/site/.done" ]; then
    rm -rf "$here/site" && mkdir "$here/site"
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$here/site" "$here"/wheels/*.whl || exit 1
    touch "$here/site/.done"
  fi
  export PYTHONPATH="$here/site:$here/examples:$here/tests" TF_CPP_MIN_LOG_LEVEL=2 SOK_BAZEL_BIN="$here/bin"
  # The device of programs. A TensorFlow that was built with CUDA needs no plugin, and ignores the plugin's variable.
  cuda="$("$python" -c 'import tensorflow as tf; print(tf.test.is_built_with_cuda())' 2> /dev/null | tail -n 1)"
  [ "$cuda" = True ] || export TF_PLUGGABLE_DEVICE_LIBRARY_PATH="$here/bin/tests/fake_gpu/libsok_cuda_plugin.so"
  if ! "$python" -c 'import sys, tensorflow as tf; sys.exit(not tf.config.list_physical_devices("GPU"))' 2> /dev/null; then
    printf 'TensorFlow finds no GPU: nothing was run. Is there a driver (nvidia-smi), new enough for the toolkit?\n' >&2
    exit 3
  fi
  begin
  cd "$here" || exit 1
  step check 300 "$python" tools/gpu/check.py
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
}

if [ -e "$here/gpu_tests" ]; then run_pack; else run_programs; fi
failed="$(grep -c ' FAILED: ' "$summary")"
printf '%d passed, %d failed\n' "$(grep -c ' s  passed; ' "$summary")" "$failed" | tee -a "$summary"
[ "$failed" = 0 ]
