#!/usr/bin/env bash
# Fuzzes the checkpoint reader with libFuzzer under AddressSanitizer and UndefinedBehaviorSanitizer, until it finds an
# error or the time is over: N seconds of one process, or half as many of two if there are two cores. Needs clang and
# installs it if possible.
#
# Usage: tools/fuzz.sh [--seconds N]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$SOK_ROOT/tools/lib/packages.sh"

seconds=60
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds="${2:-}" && shift 2 || fail "--seconds needs a number." ;;
    --seconds=*) seconds="${1#--seconds=}" && shift ;;
    -h | --help) print_usage ;;
    *) fail "tools/fuzz.sh has no option $1 (see --help)." ;;
  esac
done
# libFuzzer takes 0 for no limit.
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || fail "--seconds needs a whole number above 0, not '$seconds'."

folder="$SOK_HOME/fuzz/$(printf '%s' "$SOK_ROOT" | cksum | cut -d' ' -f1)"
sanitizers="-fsanitize=address,undefined -fno-sanitize-recover=all"
export options="-std=c++17 -g1 -w -I. -DSOK_CHECK_BOUNDS -ffp-contract=off"
export checked="-O1 -fsanitize=fuzzer-no-link $sanitizers"
# For code that a restore links but hardly calls; otherwise it would take a third of the compile time.
export linked="-O0 -fsanitize=address"

sources() {
  find cc \( -path cc/engine/contract -o -path cc/cpu/dense_tables -o -path cc/vocabulary \) -prune -o \
    -name '*.cc' ! -name '*_test.cc' -print
}

# Prints a line for each compilation: a name and its sources, up to eight of one folder, because most of the compiler's
# time goes into headers.
compilations() {
  sources | sort | awk -F/ '
    # The files of cc/cpu/pooling have clashing names, and those for tests are few.
    { name = folder = $0; sub("/[^/]*$", "", folder) }
    folder !~ /(pooling|testing|fuzz)$/ { before = count[folder]++; name = folder "/" int(before / 8) }
    { gsub("/", "_", name) }
    { sources_of[name] = sources_of[name] " " $0 }
    END { for (name in sources_of) print name sources_of[name] }'
}

compile() {  # compile NAME SOURCE...
  local object="$folder/objects/$1.o" of_part="$linked" source
  shift
  case "$1" in
    cc/base/* | cc/checkpoint/* | cc/cpu/index/* | cc/placement/* | cc/cpu/store/* | cc/table/*) of_part="$checked" ;;
  esac
  if [ ! -e "$object" ] || [ -n "$(find cc -name '*.h' -newer "$object" -print -quit)" ] ||
    [ -n "$(find "$@" -newer "$object" -print -quit)" ]; then
    # shellcheck disable=SC2086  # a list of words
    for source in "$@"; do printf '#include "%s"\n' "$source"; done | clang++ $options $of_part -x c++ -c - -o "$object"
  fi
}

# Seeds: each kind of checkpoint for several readers, unchanged and with one change of each kind.
make_seeds() {
  local image reader change
  for image in 0 1 2 3 4; do
    for reader in 0 21 201; do
      printf "\\x$(printf %02x "$image")\\x$(printf %02x "$reader")" > "$folder/seeds/$image-$reader"
      for change in 0 1 2 3 4 5 6; do
        printf "\\x$(printf %02x "$image")\\x$(printf %02x "$reader")\\x0${change}\\x05\\x00\\x81\\x00\\x0b\\x05" \
          > "$folder/seeds/$image-$reader-$change"
      done
    done
  done
}

cd "$SOK_ROOT"
mkdir -p "$folder/objects" "$folder/seeds" "$folder/corpus"
install_clang
say "Building the fuzzer"
export -f compile
export folder
compilations | xargs -P "$(nproc)" -L 1 "$BASH" -euo pipefail -c 'compile "$@"' compile
objects=()
while read -r name _; do objects+=("$folder/objects/$name.o"); done < <(compilations)
# shellcheck disable=SC2086  # lists of words
clang++ $sanitizers -fsanitize=fuzzer "${objects[@]}" -lgtest -lpthread -o "$folder/read_checkpoint"
make_seeds
processes=$(($(nproc) > 1 ? 2 : 1))
seconds_of_each="$(((seconds + processes - 1) / processes))"
say "Fuzzing for $seconds_of_each seconds; processes: $processes. Inputs that cause an error are written to $folder"
cd "$folder"
exec ./read_checkpoint -jobs="$processes" -workers="$processes" -max_total_time="$seconds_of_each" \
  -max_len=4096 -timeout=20 -rss_limit_mb=4096 -use_value_profile=1 -verbosity=0 -print_final_stats=1 corpus seeds
