#!/usr/bin/env bash
# Makes the environments of the libraries that measure.py compares with ours, each from its file in requirements/.
# Makes only those that are missing. If one cannot be made, reports that and continues with the others.
#
# Usage: benchmarks/setup_peers.sh [NAME]...      (tfra, torch; without a name: all. fbgemm is in that of torch)
#
# Environment: SOK_HOME  environments are in its folder peers and take 4 GB (~/.cache/sparse-operation-kit)
#              PYTHON    the Python 3.11 to make them from
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../tools/lib/common.sh"
source "$SOK_ROOT/tools/lib/environment.sh"

readonly REQUIREMENTS="$SOK_ROOT/benchmarks/requirements"
readonly PEERS=(tfra torch)

# The requirement files of a peer: NAME.txt, and NAME-no-deps.txt if there is one.
peer_files() {  # peer_files NAME
  printf '%s\n' "$REQUIREMENTS/$1.txt"
  find "$REQUIREMENTS" -name "$1-no-deps.txt"
}

peer_imports() {  # peer_imports NAME
  if [ "$1" = tfra ]; then echo "import bench.tfra_side"; else echo "import bench.torch_sides, fbgemm_gpu"; fi
}

make_peer() {  # make_peer NAME NUMBER; status 1 if it cannot be made
  local env="$SOK_HOME/peers/$1" stamp log
  stamp="$(peer_files "$1" | xargs cat | sha256sum | cut -c 1-16)"
  if [ "$stamp" = "$(cat "$env/.stamp" 2> /dev/null || true)" ]; then return 0; fi
  say "[$2/${#PEERS[@]}] $1, into $env: 1 to 3 minutes"
  rm -rf "$env"
  "$BASE_PYTHON" -m venv "$env" || { say "      $BASE_PYTHON could not make a virtual environment."; return 1; }
  log="$env/pip.log"
  if ! install_peer "$1" "$env" > "$log" 2>&1; then
    say "      $1 could not be installed. The full log is in $log. Its errors:" "$(grep -i error "$log" | tail -n 3)"
    return 1
  fi
  printf '%s' "$stamp" > "$env/.stamp"
}

install_peer() {  # install_peer NAME ENVIRONMENT
  local pip=("$2/bin/python" -m pip install --disable-pip-version-check --no-input)
  "${pip[@]}" -r "$REQUIREMENTS/$1.txt" || return 1
  if [ -e "$REQUIREMENTS/$1-no-deps.txt" ]; then
    "${pip[@]}" --no-deps -r "$REQUIREMENTS/$1-no-deps.txt" || return 1
  fi
  # Imports the library, because one that pip could install may still lack a symbol.
  PYTHONPATH="$SOK_ROOT/benchmarks" TF_CPP_MIN_LOG_LEVEL=2 TF_USE_LEGACY_KERAS=1 \
    "$2/bin/python" -c "$(peer_imports "$1")"
}

main() {
  local name number=0 missing=()
  case "${1:-}" in
    -h | --help) print_usage ;;
  esac
  for name in "$@"; do
    [[ " ${PEERS[*]} " == *" $name "* ]] || fail "There is no peer $name; known are ${PEERS[*]}."
  done
  mkdir -p "$SOK_HOME/peers" 2> /dev/null ||
    fail "$SOK_HOME is not writable. Set SOK_HOME to a folder with 4 GB free and run this again."
  # The requirements are for the default TensorFlow's Python, whatever the library is measured with.
  BASE_PYTHON="$(SOK_PYTHON='' SOK_TENSORFLOW="$SOK_DEFAULT_TENSORFLOW" find_base_python)"
  [ -n "$BASE_PYTHON" ] || fail "Python 3.11 is needed. Install it, or set PYTHON to its path."
  exec 9> "$SOK_HOME/peers/lock"
  flock -n 9 || { say "Waiting for another set-up to finish."; flock 9; }
  for name in "${PEERS[@]}"; do
    number=$((number + 1))
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    make_peer "$name" "$number" || missing+=("$name")
  done
  [ ${#missing[@]} = 0 ] || say "Not made: ${missing[*]}. Run this again to retry."
}

main "$@"
