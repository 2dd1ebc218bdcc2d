# shellcheck shell=bash
# Sourced by tools/setup.sh: programs and libraries from the system's package manager.

# Prints the Debian packages of missing programs and libraries. Looks for their files, not for packages, because they
# may have been installed in a different way.
missing_packages() {
  command -v g++ > /dev/null || echo g++
  command -v make > /dev/null || echo make
  command -v bazel > /dev/null || echo bazel-bootstrap
  [ -e /usr/include/gtest/gtest.h ] || [ -e /usr/local/include/gtest/gtest.h ] || echo libgtest-dev
  [ -e /usr/include/nlohmann/json.hpp ] || [ -e /usr/local/include/nlohmann/json.hpp ] || echo nlohmann-json3-dev
  if [ "$SOK_HOROVOD" = 1 ]; then
    command -v cmake > /dev/null || echo cmake
    command -v mpicc > /dev/null || echo libopenmpi-dev
    command -v mpirun > /dev/null || echo openmpi-bin
  fi
  if [ ! -e "$(sok_python)" ]; then
    local python
    python="$(find_base_python)"
    if [ -z "$python" ]; then
      echo python3-dev python3-venv
    elif ! "$python" -c 'import ensurepip, venv' 2> /dev/null; then
      echo python3-venv
    fi
  fi
}

# Prints the prefix that runs a command as root: nothing if this is root, else sudo. Fails if sudo does not work.
root_prefix() {
  if [ "$(id -u)" = 0 ]; then
    return 0
  elif command -v sudo > /dev/null && { sudo -n true 2> /dev/null || [ -t 0 ]; }; then
    echo sudo
  else
    return 1
  fi
}

install_system_packages() {
  local packages as_root log
  packages="$(missing_packages | paste -sd' ')"
  [ -n "$packages" ] || return 0
  say "[1/3] System packages: $packages"
  if ! command -v apt-get > /dev/null; then
    fail "These packages are missing (names as on Debian 12): $packages. This system has no apt-get: install them" \
      "with its own package manager and run this again."
  fi
  if ! as_root="$(root_prefix)"; then
    # MPI is optional, as Horovod works without it; the other packages are needed.
    local needed="${packages/libopenmpi-dev/}"
    needed="${needed/openmpi-bin/}"
    [ -n "${needed// /}" ] || return 0
    fail "These packages are missing: $packages. You are not root and sudo does not work. Ask an administrator to" \
      "run: apt-get install --no-install-recommends $packages"
  fi
  log="$(mktemp)"
  # shellcheck disable=SC2086  # lists of words
  { $as_root apt-get update && $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends $packages; } < /dev/null > "$log" 2>&1 ||
    fail "apt-get could not install: $packages. Is there a network? The last lines of its log, $log:" \
      "$(tail -n 5 "$log")"
  rm -f "$log"
}
