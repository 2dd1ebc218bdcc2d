# shellcheck shell=bash
# Sourced by scripts that start ranks: several processes of one program on this machine.

# Replaces this process by a launcher that runs the command on N ranks: mpirun where Horovod was built with MPI,
# else horovodrun, which starts them over Gloo.
exec_on_ranks() {  # exec_on_ranks N COMMAND...
  local ranks="$1" as_root=()
  shift
  if command -v mpirun > /dev/null && horovod_has_mpi; then
    [ "$(id -u)" != 0 ] || as_root=(--allow-run-as-root)
    # Bound to a core each, ranks would have one thread each; and one that waits should leave the core to others.
    exec mpirun "${as_root[@]}" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np "$ranks" "$@"
  fi
  exec "$(sok_env)/bin/horovodrun" -np "$ranks" --gloo --network-interface lo "$@"
}

horovod_has_mpi() {
  "$(sok_python)" -c 'import sys; import horovod.tensorflow as hvd; sys.exit(not hvd.mpi_built())' 2> /dev/null
}
