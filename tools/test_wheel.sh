#!/usr/bin/env bash
# Builds the wheel, installs it with pip into a fresh environment that has the same TensorFlow, and trains a step
# with it from a folder outside the checkout.
#
# Usage: tools/test_wheel.sh [--tensorflow VERSION] [--fresh]
#   --fresh  installs TensorFlow itself anew; else the new environment borrows it from the one of tools/setup.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

take_tensorflow_option "$@"
"$SOK_ROOT/tools/setup.sh"
say "Building the wheel"
sok_bazel build --jobs="$(nproc)" --noshow_progress //tools:wheel
wheel="$(find "$(sok_bazel_link bin)/tools/wheel/" -name '*.whl')"

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"$(sok_python)" -m venv "$folder/env"
python="$folder/env/bin/python"
say "Installing $(basename "$wheel")"
if [ "${SOK_ARGS[*]}" = --fresh ]; then
  "$python" -m pip install --quiet --disable-pip-version-check -r "$SOK_ROOT/tools/requirements/tensorflow-$SOK_TENSORFLOW.txt" \
    -c "$SOK_ROOT/tools/requirements/constraints-$SOK_TENSORFLOW.txt"
else
  site='import sysconfig; print(sysconfig.get_path("purelib"))'
  "$(sok_python)" -c "$site" > "$("$python" -c "$site")/borrowed.pth"
fi
"$python" -m pip install --quiet --disable-pip-version-check --no-deps "$wheel"
cp "$SOK_ROOT/tools/wheel_check.py" "$folder/"
(cd "$folder" && env -u PYTHONPATH "$python" wheel_check.py "$folder/env")
