# shellcheck shell=bash
# Sourced by tools/setup.sh, and by scripts that use clang: programs and libraries from the system's package manager.

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
  local packages log
  packages="$(missing_packages | paste -sd' ')"
  [ -n "$packages" ] || return 0
  say "[1/3] System packages: $packages"
  if ! command -v apt-get > /dev/null; then
    fail "These packages are missing (names as on Debian 12): $packages. This system has no apt-get: install them" \
      "with its own package manager and run this again."
  fi
  if ! root_prefix > /dev/null; then
    # MPI is optional, as Horovod works without it; the other packages are needed.
    local needed="${packages/libopenmpi-dev/}"
    needed="${needed/openmpi-bin/}"
    [ -n "${needed// /}" ] || return 0
    fail "These packages are missing: $packages. You are not root and sudo does not work. Ask an administrator to" \
      "run: apt-get install --no-install-recommends $packages"
  fi
  log="$(mktemp)"
  # shellcheck disable=SC2086  # lists of words
  install_with_apt_get $packages > "$log" 2>&1 ||
    fail "apt-get could not install: $packages. Is there a network? The last lines of its log, $log:" \
      "$(tail -n 5 "$log")"
  rm -f "$log"
}

install_with_apt_get() {
  local as_root
  as_root="$(root_prefix)" || return 1
  { $as_root apt-get update && $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "$@"; } < /dev/null
}

# The build does not need clang.
has_clang() { command -v clang++ > /dev/null && has_libfuzzer; }

# libFuzzer is a separate package.
has_libfuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer,address - -o /dev/null 2> /dev/null
}

# Installs clang and libFuzzer if they are missing; fails if it cannot.
install_clang() {
  local log packages="clang libclang-rt-dev"
  ! has_clang || return 0
  root_prefix > /dev/null || fail "This needs clang with libFuzzer: apt-get install $packages"
  say "Installing $packages"
  log="$(mktemp)"
  # shellcheck disable=SC2086  # a list of words
  install_with_apt_get $packages > "$log" 2>&1 || true
  has_clang || fail "This needs clang with libFuzzer ($packages), which could not be installed; see $log."
  rm -f "$log"
}
