#!/usr/bin/env bash
# Writes constraints-VERSION.txt: all packages and versions that pip chooses for the requirements beside this script,
# dependencies included. Run it after changing the requirements; tools/setup.sh then makes the environments again.
#
# Usage: tools/requirements/update.sh TENSORFLOW_VERSION
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$SOK_ROOT/tools/lib/environment.sh"

[ $# = 1 ] || fail "Usage: tools/requirements/update.sh TENSORFLOW_VERSION"
take_tensorflow_option --tensorflow "$1"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"$(find_base_python)" -m venv "$folder"
requirements=()
while read -r file; do
  case "$file" in
    */constraints-* | */no-deps-*) ;;
    *) requirements+=(-r "$file") ;;
  esac
done < <(requirement_files)
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${requirements[@]}"
cd "$SOK_ROOT/tools/requirements"
{
  echo "# Every package of the environment with TensorFlow $SOK_TENSORFLOW, dependencies of dependencies included, so"
  echo "# that it is the same everywhere. Written by update.sh."
  "$folder/bin/python" -m pip freeze --all --disable-pip-version-check | grep -v '^pip=='
} > "constraints-$SOK_TENSORFLOW.txt"
