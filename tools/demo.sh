#!/usr/bin/env bash
# Sets up, builds, and trains a click-through model: by default on generated data whose best reachable AUC is
# known, in a minute or two. Shows the loss, the speed and the time left, and the held-out AUC at the end.
#
# Usage: tools/demo.sh [--tensorflow VERSION] [ARGUMENT OF examples/train_ctr.py]...
#   tools/demo.sh --dataset movielens --data_dir FOLDER
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

take_tensorflow_option "$@"
arguments=("${SOK_ARGS[@]}")
case " ${arguments[*]} " in
  *" --dataset "* | *" --dataset="*) ;;
  *) arguments=(--dataset synthetic "${arguments[@]}") ;;
esac
say "Building; the first time takes several minutes."
exec "$SOK_ROOT/tools/python.sh" "$SOK_ROOT/examples/train_ctr.py" "${arguments[@]}"
