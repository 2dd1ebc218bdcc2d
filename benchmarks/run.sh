#!/usr/bin/env bash
# Measures this library and others on this machine: makes the peers' environments, builds, runs the programs, and writes
# numbers (JSON), tables (Markdown) and pictures. When run again, it keeps the environments and builds.
#
# Usage: benchmarks/run.sh [--all] [--out FOLDER] [--movielens FOLDER] [FLAG_OF_PEERS_PY]...
#          without --all: the measurements that have goals, about 15 minutes on 2 cores after building
#          --all: also forward lookups of all peers, steps with other features, batch, dim, ids and threads,
#          lookup_and_step.py, feature_columns.py, lookups_over_ranks.py, lookup_prefetch.py and instructions.py;
#          about 60 minutes
#          --out: the folder of results (benchmarks/results)
#          --movielens: the folder with MovieLens 100K's files; without it, the trainer runs on generated data only
#          other flags are passed to the steps of peers.py: --dim 64 --optimizer lazy_adam --threads 1,2
#
# Environment: SOK_HOME, SOK_TENSORFLOW, PYTHON  as for tools/setup.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../tools/lib/common.sh"

readonly BENCHMARKS="$SOK_ROOT/benchmarks"

measure() {  # measure NAME PROGRAM [FLAG]...: writes the table to OUT/NAME.md and the numbers to OUT/NAME.json
  local name="$1" program="$2"
  shift 2
  say "$program.py $*"
  if SOK_BUILD=0 "$SOK_ROOT/tools/python.sh" "$BENCHMARKS/$program.py" --json "$OUT/$name.json" "$@" \
    > "$OUT/$name.md"; then
    cat "$OUT/$name.md"
  else
    say "$program.py failed."
    FAILED+=("$name")
    rm -f "$OUT/$name.json"
  fi
}

# LazyAdam steps, varying one setting at a time from those of the goals.
measure_axes() {
  local step=(--what step --optimizer lazy_adam --rounds 7)
  measure more_features peers "${step[@]}" --features 55,107 --dim 16 --hotness 1
  measure large_batch peers "${step[@]}" --batch 65536 --dim 16 --hotness 1 --batches 2
  measure wide_rows peers "${step[@]}" --dim 128
  measure other_ids peers "${step[@]}" --zipf 1.2,0 --dim 16
  measure one_thread peers "${step[@]}" --threads 1 --hotness 1
}

# The goals of all results in the folder.
list_goals() {
  local name files=()
  for name in steps exact_adam large_forward engine_parts trainer; do
    if [ -e "$OUT/$name.json" ]; then files+=("$OUT/$name.json"); fi
  done
  [ ${#files[@]} -gt 0 ] || return 0
  if SOK_BUILD=0 "$SOK_ROOT/tools/python.sh" "$BENCHMARKS/goals.py" --plot "$OUT/goals.png" "${files[@]}" \
    > "$OUT/goals.md"; then
    cat "$OUT/goals.md"
  else
    FAILED+=(goals)
  fi
}

main() {
  local all=0 flags=() trainer=()
  OUT="$BENCHMARKS/results"
  FAILED=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --all) all=1 ;;
      --out)
        [ $# -ge 2 ] || fail "--out needs a folder."
        OUT="$2"
        shift
        ;;
      --movielens)
        [ $# -ge 2 ] || fail "--movielens needs a folder."
        trainer+=(--movielens "$2")
        shift
        ;;
      -h | --help)
        print_usage
        exit 0
        ;;
      *) flags+=("$1") ;;
    esac
    shift
  done
  mkdir -p "$OUT"
  "$BENCHMARKS/setup_peers.sh"
  [ "$all" = 0 ] || "$SOK_ROOT/tools/setup.sh" --horovod
  say "Building"
  "$SOK_ROOT/tools/python.sh" -c ''
  sok_bazel build --jobs="$(nproc)" //benchmarks/engine:group_benchmark \
    //benchmarks/engine:bare_gather_benchmark //benchmarks/engine:parts_benchmark > "$OUT/build.log" 2>&1 ||
    fail "The build failed:" "$(tail -n 20 "$OUT/build.log")"
  measure steps peers --what step --plot "$OUT/steps.png" "${flags[@]}"
  measure exact_adam peers --what step --optimizer adam --dim 16 --peers sok_lazy,tensorflow,engine
  measure large_forward peers --what forward --optimizer sgd --table_mb 3000 --peers fbgemm
  measure engine_parts engine_parts --plot "$OUT/engine_parts.png"
  measure trainer trainer --plot "$OUT/trainer.png" --rounds 5 "${trainer[@]}"
  if [ "$all" = 1 ]; then
    measure forward peers --what forward --optimizer sgd --table_mb 500,3000 --plot "$OUT/forward.png"
    measure_axes
    measure lookup_and_step lookup_and_step
    measure feature_columns feature_columns
    measure lookups_over_ranks lookups_over_ranks --plot "$OUT/lookups_over_ranks.png"
    measure lookup_prefetch lookup_prefetch
    measure instructions instructions
  fi
  list_goals
  say "Numbers, tables and pictures are in $OUT."
  [ ${#FAILED[@]} = 0 ] || fail "Failed: ${FAILED[*]}; their messages are above."
}

main "$@"
