#!/usr/bin/env bash
# Sets up, builds, and trains a click-through model, by default for a minute or two on generated data whose best
# possible AUC is known. Shows the loss, the speed and the time left, and the AUC on held-out data at the end.
#
# Usage: tools/demo.sh [--ranks N] [--tensorflow VERSION | --python PYTHON] [ARGUMENT OF examples/train_ctr.py]...
#   tools/demo.sh --dataset movielens --data_dir FOLDER
#   tools/demo.sh --ranks 2    on two processes of this machine, with the tables sharded over them
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$SOK_ROOT/tools/lib/ranks.sh"

take_environment_options "$@"
ranks=1
arguments=()
set -- "${SOK_ARGS[@]}"
while [ $# -gt 0 ]; do
  case "$1" in
    --ranks)
      [ $# -ge 2 ] || fail "--ranks needs a number of processes, such as 2."
      ranks="$2"
      shift
      ;;
    --ranks=*) ranks="${1#--ranks=}" ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
[[ "$ranks" =~ ^[1-9][0-9]*$ ]] || fail "--ranks needs a number of processes, such as 2, not '$ranks'."
case " ${arguments[*]} " in
  *" --dataset "* | *" --dataset="*) ;;
  *) arguments=(--dataset synthetic "${arguments[@]}") ;;
esac

say "Building; the first time takes several minutes."
program=("$SOK_ROOT/tools/python.sh" "$SOK_ROOT/examples/train_ctr.py" "${arguments[@]}")
[ "$ranks" != 1 ] || exec "${program[@]}"
# Set up and build once, not on every rank.
"$SOK_ROOT/tools/setup.sh" --horovod
"$SOK_ROOT/tools/python.sh" -c ""
export SOK_BUILD=0
exec_on_ranks "$ranks" "${program[@]}"
