#!/usr/bin/env bash
# Measures this library beside others on this machine: makes the peers' environments, builds, runs the programs, and
# leaves numbers (JSON), tables (Markdown) and pictures. Can be run again: what is made already is not made anew.
#
# Usage: benchmarks/run.sh [--all] [--out FOLDER] [FLAG_OF_PEERS_PY]...
#          without --all: peers.py alone, some 8 minutes on 2 cores once all is built
#          --all: lookup_and_step.py, feature_columns.py and lookups_over_ranks.py as well, some 25 minutes
#          --out: where results go (benchmarks/results)
#          the rest goes to peers.py: --dim 64 --optimizer lazy_adam --threads 1,2
#
# Environment: SOK_HOME, SOK_TENSORFLOW, PYTHON  as for tools/setup.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../tools/lib/common.sh"

readonly BENCHMARKS="$SOK_ROOT/benchmarks"

measure() {  # measure PROGRAM [FLAG]...: its table goes to OUT/PROGRAM.md, its numbers to OUT/PROGRAM.json
  local program="$1"
  shift
  say "$program.py $*"
  if SOK_BUILD=0 "$SOK_ROOT/tools/python.sh" "$BENCHMARKS/$program.py" --json "$OUT/$program.json" "$@" \
    > "$OUT/$program.md"; then
    cat "$OUT/$program.md"
  else
    say "$program.py failed."
    FAILED+=("$program.py")
  fi
}

main() {
  local all=0 flags=()
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
  say "Building"
  "$SOK_ROOT/tools/python.sh" -c ''
  sok_bazel build --jobs="$(nproc)" //benchmarks/engine:group_benchmark \
    //benchmarks/engine:bare_gather_benchmark > "$OUT/build.log" 2>&1 ||
    fail "The build failed:" "$(tail -n 20 "$OUT/build.log")"
  measure peers --plot "$OUT/peers.png" "${flags[@]}"
  if [ "$all" = 1 ]; then
    measure lookup_and_step
    measure feature_columns
    measure lookups_over_ranks --plot "$OUT/lookups_over_ranks.png"
  fi
  say "Numbers, tables and pictures are in $OUT."
  [ ${#FAILED[@]} = 0 ] || fail "Without: ${FAILED[*]}; what they said is above."
}

main "$@"
