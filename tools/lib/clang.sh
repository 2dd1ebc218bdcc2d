# shellcheck shell=bash
# Sourced by scripts that use clang, after tools/lib/packages.sh. The build does not need clang.

has_clang() { command -v clang++ > /dev/null && has_libfuzzer; }

# libFuzzer is a separate package.
has_libfuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer,address - -o /dev/null 2> /dev/null
}

# Installs clang and libFuzzer if they are missing; fails if it cannot.
install_clang() {
  local as_root log packages="clang libclang-rt-dev"
  ! has_clang || return 0
  as_root="$(root_prefix)" || fail "This needs clang with libFuzzer: apt-get install $packages"
  say "Installing $packages"
  log="$(mktemp)"
  { $as_root apt-get update && $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends $packages; } > "$log" 2>&1 || true
  has_clang || fail "This needs clang with libFuzzer ($packages), which could not be installed; see $log."
  rm -f "$log"
}
