#!/usr/bin/env bash
# Builds the wheel, installs it with pip into a new environment with the same TensorFlow, and trains one step with it
# from a folder outside the checkout.
#
# Usage: tools/test_wheel.sh [--tensorflow VERSION] [--fresh | --python PYTHON]
#   --fresh          installs TensorFlow and its dependencies too, in the pinned versions. By default, the new
#                    environment uses the packages of the environment that tools/setup.sh made
#   --python PYTHON  makes the environment from this interpreter and installs TensorFlow with the newest
#                    dependencies that pip finds, because the pinned ones are for Python 3.11
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

take_tensorflow_option "$@"
requirements="$SOK_ROOT/tools/requirements"
base="$(sok_python)"
install=()
if [ "${SOK_ARGS[0]:-}" = --python ] && [ ${#SOK_ARGS[@]} != 2 ]; then
  fail "--python needs the path of an interpreter, and no other option but --tensorflow."
fi
case "${SOK_ARGS[*]}" in
  "") ;;
  -h | --help) print_usage ;;
  --fresh)
    install=(-r "$requirements/tensorflow-$SOK_TENSORFLOW.txt" -c "$requirements/constraints-$SOK_TENSORFLOW.txt")
    ;;
  "--python "*)
    base="${SOK_ARGS[1]}"
    install=(-r "$requirements/tensorflow-$SOK_TENSORFLOW.txt")
    ;;
  *) fail "tools/test_wheel.sh has no option ${SOK_ARGS[*]} (see --help)." ;;
esac

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
wheel="$("$SOK_ROOT/tools/wheel.sh" "$folder")"
"$base" -m venv "$folder/env"
python="$folder/env/bin/python"
pip_install() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }
say "Installing $(basename "$wheel") for $("$python" --version)"
if [ ${#install[@]} -gt 0 ]; then
  pip_install "${install[@]}"
else
  site='import sysconfig; print(sysconfig.get_path("purelib"))'
  "$(sok_python)" -c "$site" > "$("$python" -c "$site")/borrowed.pth"
fi
pip_install --no-deps "$wheel"
cp "$SOK_ROOT/tools/wheel_check.py" "$folder/"
(cd "$folder" && env -u PYTHONPATH "$python" wheel_check.py "$folder/env")
