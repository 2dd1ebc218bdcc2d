#!/usr/bin/env bash
# Prepares this machine and checkout for building, testing and running. Installs system packages (as root or with sudo),
# makes a Python environment with pinned packages, and writes Bazel's configuration.
# Does only what is missing; if nothing is, it takes a second.
#
# Usage: tools/setup.sh [--tensorflow VERSION | --python PYTHON] [--horovod | --horovod-source]
#   --python PYTHON   uses the TensorFlow of this Python, whatever its build, instead of an environment with a known
#                     version. Nothing is installed into that Python's own folders
#   --horovod         also builds and installs Horovod, for training on several ranks: 2 to 8 minutes, once
#   --horovod-source  downloads only Horovod's source, which the build of the library for several ranks needs
#
# Environment: SOK_HOME        the folder of environments and caches (~/.cache/sparse-operation-kit)
#              SOK_TENSORFLOW  the TensorFlow version, as --tensorflow
#              SOK_PYTHON      as --python
#              PYTHON          the Python 3.11 to make the environment from (/usr/bin/python3.11, or the one on the path)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$SOK_ROOT/tools/lib/packages.sh"
source "$SOK_ROOT/tools/lib/horovod.sh"
source "$SOK_ROOT/tools/lib/environment.sh"

take_environment_options "$@"
SOK_HOROVOD=0
horovod_source=0
for argument in "${SOK_ARGS[@]}"; do
  case "$argument" in
    --horovod) SOK_HOROVOD=1 horovod_source=1 ;;
    --horovod-source) horovod_source=1 ;;
    -h | --help) print_usage ;;
    *) fail "tools/setup.sh has no option $argument (see --help)." ;;
  esac
done

mkdir -p "$SOK_HOME/env" 2> /dev/null ||
  fail "$SOK_HOME is not writable. Set SOK_HOME to a folder with $NEEDED_GB GB free and run this again."
# One set-up of an environment at a time. Of what environments share, only one does anything at a time.
exec 9> "$(sok_env).lock"
flock -n 9 || { say "Waiting for another set-up to finish."; flock 9; }

alone() { (flock 8; "$@") 8> "$SOK_HOME/lock"; }

alone install_system_packages
make_environment
[ "$horovod_source" = 0 ] || alone fetch_horovod_source
write_bazel_configuration
