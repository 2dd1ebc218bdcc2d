#!/usr/bin/env bash
# Prepares this machine and checkout for building, testing and running:
#   system packages (where it may install them), a Python environment with pinned packages, Bazel's configuration.
# Does only what is missing; with nothing missing it takes a second.
#
# Usage: tools/setup.sh [--tensorflow VERSION] [--horovod | --horovod-source]
#   --horovod         also builds and installs Horovod, which training on several ranks needs: 2 to 8 minutes, once
#   --horovod-source  fetches its source alone, which building the library of the exchange between ranks needs
#
# Environment: SOK_HOME      where environments and caches live (~/.cache/sparse-operation-kit)
#              SOK_TENSORFLOW  the version, as --tensorflow
#              PYTHON        the Python 3.11 to make the environment from
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$SOK_ROOT/tools/lib/packages.sh"
source "$SOK_ROOT/tools/lib/horovod.sh"
source "$SOK_ROOT/tools/lib/environment.sh"

take_tensorflow_option "$@"
SOK_HOROVOD=0
horovod_source=0
for argument in "${SOK_ARGS[@]}"; do
  case "$argument" in
    --horovod) SOK_HOROVOD=1 horovod_source=1 ;;
    --horovod-source) horovod_source=1 ;;
    -h | --help)
      print_usage
      exit 0
      ;;
    *) fail "tools/setup.sh does not know $argument (see --help)." ;;
  esac
done

mkdir -p "$SOK_HOME/env" 2> /dev/null ||
  fail "$SOK_HOME cannot be written. Set SOK_HOME to a folder with 6 GB free and run this again."
# One set-up at a time: two would build the same environment over each other.
exec 9> "$SOK_HOME/lock"
flock -n 9 || { say "Waiting for another set-up to finish."; flock 9; }

install_system_packages
make_environment
[ "$horovod_source" = 0 ] || fetch_horovod_source
write_bazel_configuration
