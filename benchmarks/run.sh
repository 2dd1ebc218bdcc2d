#!/usr/bin/env bash
# Measures this library and others on this machine: makes the peers' environments, builds, runs measure.py, and writes
# numbers (JSON), tables (Markdown) and pictures. When run again, it keeps the environments and builds.
#
# Usage: benchmarks/run.sh [--all] [--out FOLDER] [--movielens FOLDER] [FLAG_OF_PEERS]...
#          without --all: the measurements that have goals, about 15 minutes on 2 cores after building
#          --all: also what is listed below, about 60 minutes
#          --out: the folder of results (benchmarks/results)
#          --movielens: the folder with MovieLens 100K's files; without it, the trainer runs on generated data only
#          other flags are passed to the steps of peers: --dim 64 --optimizer lazy_adam --threads 1,2
#
# Environment: SOK_HOME, SOK_TENSORFLOW, PYTHON  as for tools/setup.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../tools/lib/common.sh"

# NAME WORKLOAD FLAG...: writes NAME.md, NAME.json and NAME.png.
readonly GOALS="
steps         peers   --what step
exact_adam    peers   --what step --optimizer adam --dim 16 --peers sok_lazy,tensorflow,engine
large_forward peers   --what forward --optimizer sgd --table_mb 3000 --peers fbgemm
parts         parts
trainer       trainer --rounds 5"
readonly ALL="
forward       peers   --what forward --optimizer sgd --table_mb 500,3000
more_features peers   --what step --optimizer lazy_adam --features 55,107 --dim 16 --hotness 1
large_batch   peers   --what step --optimizer lazy_adam --batch 65536 --dim 16 --hotness 1 --batches 2
wide_rows     peers   --what step --optimizer lazy_adam --dim 128
other_ids     peers   --what step --optimizer lazy_adam --zipf 1.2,0 --dim 16
one_thread    peers   --what step --optimizer lazy_adam --threads 1 --hotness 1
machine       parts   --part update,cores
lookup_and_step    lookup_and_step
feature_columns    feature_columns
lookups_over_ranks lookups_over_ranks
parameter_servers  parameter_servers --sides sok,tensorflow,tfra,ranks
server_costs       server_costs
lookup_prefetch    lookup_prefetch
instructions       instructions"

measure() {  # measure NAME WORKLOAD [FLAG]...
  local name="$1"
  say "${@:2}"
  SOK_BUILD=0 "$SOK_ROOT/tools/python.sh" "$SOK_ROOT/benchmarks/measure.py" "${@:2}" --json "$OUT/$name.json" \
    --plot "$OUT/$name.png" > "$OUT/$name.md" || { FAILED+=("$name"); rm -f "$OUT/$name.json"; }
  cat "$OUT/$name.md"
}

OUT="$SOK_ROOT/benchmarks/results" FAILED=() list="$GOALS" steps=() trainer=()
while [ $# -gt 0 ]; do
  case "$1" in
    --all) list+="$ALL" ;;
    --out) OUT="${2:?--out needs a folder.}" && shift ;;
    --movielens) trainer=(--movielens "${2:?--movielens needs a folder.}") && shift ;;
    -h | --help) print_usage ;;
    *) steps+=("$1") ;;
  esac
  shift
done
mkdir -p "$OUT"
"$SOK_ROOT/benchmarks/setup_peers.sh"
[ "$list" = "$GOALS" ] || "$SOK_ROOT/tools/setup.sh" --horovod
"$SOK_ROOT/tools/python.sh" -c ''
sok_bazel build --jobs="$(nproc)" //benchmarks/engine:all > "$OUT/build.log" 2>&1 ||
  fail "The build failed:" "$(tail -n 20 "$OUT/build.log")"
while read -ra line; do
  case "${line[0]:-}" in
    '') ;;
    steps) measure "${line[@]}" "${steps[@]}" ;;
    trainer) measure "${line[@]}" "${trainer[@]}" ;;
    *) measure "${line[@]}" ;;
  esac < /dev/null
done <<< "$list"
results="$(for name in steps exact_adam large_forward parts trainer; do find "$OUT" -name "$name.json"; done | paste -sd,)"
[ -z "$results" ] || measure goals goals --saved "$results"
say "Numbers, tables and pictures are in $OUT."
[ ${#FAILED[@]} = 0 ] || fail "Failed: ${FAILED[*]}; their messages are above."
