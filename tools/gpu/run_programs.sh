#!/usr/bin/env bash
# Runs the programs beside it on a machine with a GPU, within ten minutes: engine_test, some of its tests under
# compute-sanitizer where that is found, and engine_benchmark. It needs a driver, but nothing from the checkout.
#
# Usage: run.sh [OUTPUT]
#   OUTPUT  the folder for what they print and measure; $OUT, or `output` beside this file, if not given
#
# Environment: ENGINE_TEST_FLAGS       of engine_test (--large --gtest_brief=1)
#              SANITIZED_TESTS         the tests that run under compute-sanitizer, in the form of --gtest_filter
#              ENGINE_BENCHMARK_FLAGS  of engine_benchmark (--seconds=130)
#
# The last line is `N passed, N failed`, where each program and each tool counts as one. Exit status: 0 if none failed;
# 3 without a device, in which case nothing is run.
set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
output="${1:-${OUT:-$here/output}}"
read -ra test_flags <<< "${ENGINE_TEST_FLAGS:---large --gtest_brief=1}"
read -ra benchmark_flags <<< "${ENGINE_BENCHMARK_FLAGS:---seconds=130}"
sanitized="${SANITIZED_TESTS:-KeyIndexTest.*:DedupTest.*:SegmentsTest.*:BagsTest.*:PoolTest.*:GradientSumsTest.*:KeyDirectoryTest.*:GpuEqualsCpuTest.*}"
passed=0 failed=0 summary=()

step() {  # step NAME SECONDS COMMAND...
  local name="$1" seconds="$2" log status start=$SECONDS
  shift 2
  log="$output/$name.log"
  printf '\n===== %s: %s\n' "$name" "$*"
  timeout --kill-after=10 "$seconds" "$@" 2>&1 | tee "$log"
  status="${PIPESTATUS[0]}"
  case "$status" in
    0) passed=$((passed + 1)) status=passed ;;
    124 | 137) failed=$((failed + 1)) status="FAILED: not done after $seconds s" ;;
    *) failed=$((failed + 1)) status="FAILED: exit status $status" ;;
  esac
  summary+=("$(printf '%-18s %4d s  %s; %s' "$name" $((SECONDS - start)) "$status" "$(tail -n 1 "$log")")")
}

find_sanitizer() {
  local path
  for path in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
    "${CUDA_HOME:-/usr/local/cuda}/compute-sanitizer/compute-sanitizer"; do
    [ -x "$path" ] && printf '%s' "$path" && return
  done
}

if ! "$here/engine_test" --need_device '--gtest_filter=-*'; then
  printf 'There is no CUDA device that these programs can use: nothing was run.\n' >&2
  exit 3
fi
mkdir -p "$output" || exit 1
if command -v nvidia-smi > /dev/null; then
  nvidia-smi > "$output/nvidia-smi.txt" 2>&1
  nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,ECC >> "$output/nvidia-smi.txt" 2>&1
fi

step engine_test 230 "$here/engine_test" "${test_flags[@]}" "--gtest_output=xml:$output/engine_test.xml"
sanitizer="$(find_sanitizer)"
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck initcheck synccheck; do
    # Tests cause API errors on purpose.
    step "$tool" 40 "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 \
      "$here/engine_test" --small --gtest_brief=1 "--gtest_filter=$sanitized"
  done
else
  summary+=("compute-sanitizer         left out: it was not found")
fi
step engine_benchmark 180 "$here/engine_benchmark" "--json=$output/benchmark.json" "${benchmark_flags[@]}"

printf '\n'
printf '%s\n' "${summary[@]}" | tee "$output/summary.txt"
printf '%d passed, %d failed\n' "$passed" "$failed" | tee -a "$output/summary.txt"
[ "$failed" = 0 ]
