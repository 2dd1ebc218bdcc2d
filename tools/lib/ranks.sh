# shellcheck shell=bash
# Sourced by scripts that run one program on several ranks, which are processes on this machine.

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
