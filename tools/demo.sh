#!/usr/bin/env bash
# Sets up, builds, and trains a click-through model, by default for a minute or two on generated data whose best
# possible AUC is known. Shows the loss, the speed and the time left, and the AUC on held-out data at the end.
#
# Usage: tools/demo.sh [--ranks N | --parameter_servers N [--workers N]] [--tensorflow VERSION | --python PYTHON]
#                      [ARGUMENT OF examples/train_ctr.py]...
#   tools/demo.sh --dataset movielens --data_dir FOLDER
#   tools/demo.sh --ranks 2    on two processes of this machine, with the tables sharded over them
#   tools/demo.sh --parameter_servers 2 --workers 2
#                              on four processes of this machine: two hold the tables, and two train, the chief and a
#                              worker. Without --workers, two train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

# Replaces this process by a launcher that runs the command on N ranks: mpirun if Horovod was built with MPI, else
# horovodrun with Gloo.
exec_on_ranks() {  # exec_on_ranks N COMMAND...
  local ranks="$1" as_root=()
  shift
  if command -v mpirun > /dev/null && horovod_has_mpi; then
    [ "$(id -u)" != 0 ] || as_root=(--allow-run-as-root)
    # Not bound: a rank bound to one core would have one thread. Idle ranks yield their core to others.
    exec mpirun "${as_root[@]}" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np "$ranks" "$@"
  fi
  exec "$(sok_env)/bin/horovodrun" -np "$ranks" --gloo --network-interface lo "$@"
}

horovod_has_mpi() {
  "$(sok_python)" -c 'import sys; import horovod.tensorflow as hvd; sys.exit(not hvd.mpi_built())' 2> /dev/null
}

take_environment_options "$@"
declare -A processes=()
arguments=()
set -- "${SOK_ARGS[@]}"
while [ $# -gt 0 ]; do
  case "$1" in
    --ranks | --parameter_servers | --workers)
      [ $# -ge 2 ] || fail "$1 needs a number of processes, such as 2."
      processes["$1"]="$2"
      shift
      ;;
    --ranks=* | --parameter_servers=* | --workers=*) processes["${1%%=*}"]="${1#*=}" ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
for option in "${!processes[@]}"; do
  [[ "${processes[$option]}" =~ ^[1-9][0-9]*$ ]] ||
    fail "$option needs a number of processes, such as 2, not '${processes[$option]}'."
done
ranks="${processes[--ranks]:-1}" servers="${processes[--parameter_servers]:-}" workers="${processes[--workers]:-2}"
if [ -n "$servers" ] && [ -n "${processes[--ranks]:-}" ]; then
  fail "--parameter_servers and --ranks exclude each other: tables are on servers or on the ranks that train."
fi
if [ -z "$servers" ] && [ -n "${processes[--workers]:-}" ]; then
  fail "--workers needs --parameter_servers, the number of processes that hold the tables."
fi
case " ${arguments[*]} " in
  *" --dataset "* | *" --dataset="*) ;;
  *) arguments=(--dataset synthetic "${arguments[@]}") ;;
esac

say "Building; the first time takes several minutes."
program=("$SOK_ROOT/tools/python.sh" "$SOK_ROOT/examples/train_ctr.py" "${arguments[@]}")
if [ -n "$servers" ]; then
  exec "$SOK_ROOT/tools/python.sh" "$SOK_ROOT/examples/run_on_servers.py" \
    --parameter_servers "$servers" --workers "$workers" "${program[@]:1}"
fi
[ "$ranks" != 1 ] || exec "${program[@]}"
# Set up and build once, not on every rank.
"$SOK_ROOT/tools/setup.sh" --horovod
"$SOK_ROOT/tools/python.sh" -c ""
export SOK_BUILD=0
exec_on_ranks "$ranks" "${program[@]}"
