# shellcheck shell=bash
# Sourced by tools/setup.sh: Horovod's source package, and a wheel built from it for one TensorFlow version.

HOROVOD_VERSION=0.28.1  # the last release, which is published as source only
HOROVOD_SOURCE="$SOK_HOME/horovod/horovod-$HOROVOD_VERSION"

# The wheel's folder. Its name holds everything that the built library depends on.
horovod_wheel_folder() {
  local transports=gloo
  if command -v mpicc > /dev/null; then transports=mpi-gloo; fi
  printf '%s' "$SOK_HOME/horovod/tf-$(sok_name)-cp$(needed_python | tr -d .)-$transports"
}

horovod_wheel() { find "$(horovod_wheel_folder)" -name 'horovod-*.whl' 2> /dev/null | head -n 1; }

# Fetches, unpacks and keeps Horovod's source: the op library needs its headers, which are not in the wheel.
fetch_horovod_source() {
  [ ! -e "$HOROVOD_SOURCE/setup.py" ] || return 0
  local folder
  folder="$(mktemp -d "$SOK_HOME/horovod.XXXXXX")"
  say "      fetching Horovod $HOROVOD_VERSION's source"
  "$(sok_python)" -m pip download --quiet --no-deps --no-build-isolation --no-binary :all: \
    -d "$folder" "horovod==$HOROVOD_VERSION" > "$folder/log" 2>&1 ||
    fail "Horovod's source package could not be downloaded. Is there a network? pip said:" \
      "$(tail -n 5 "$folder/log")" "Only training on several ranks needs it; for the rest, run tools/setup.sh."
  tar -xzf "$folder/horovod-$HOROVOD_VERSION.tar.gz" -C "$folder"
  mkdir -p "$SOK_HOME/horovod"
  mv "$folder/horovod-$HOROVOD_VERSION" "$HOROVOD_SOURCE"
  rm -rf "$folder"
}

# Drops parts of the build that take time and are not used here: debug information, the file of GPU operations under XLA
# (which includes a header that TensorFlow has only up to 2.18), and the one of two copies of Gloo, for C++11 and C++17,
# that the TensorFlow version does not use.
prepare_horovod_source() {  # prepare_horovod_source COPY
  sed -i 's/RelWithDebInfo/Release/' "$1/setup.py"
  sed -i '/xla_mpi_ops\.cc/d' "$1/horovod/tensorflow/CMakeLists.txt"
  sed -i 's,add_subdirectory(third_party/gloo),add_subdirectory(third_party/gloo EXCLUDE_FROM_ALL),' "$1/CMakeLists.txt"
}

build_horovod_wheel() {
  [ -z "$(horovod_wheel)" ] || return 0
  alone fetch_horovod_source
  local folder log with_mpi=()
  folder="$(mktemp -d "$SOK_HOME/horovod.XXXXXX")"
  log="$folder.log"
  cp -r "$HOROVOD_SOURCE" "$folder/source"
  prepare_horovod_source "$folder/source"
  if command -v mpicc > /dev/null; then
    with_mpi=(HOROVOD_WITH_MPI=1)
  else
    with_mpi=(HOROVOD_WITHOUT_MPI=1)
    say "      no MPI found (packages openmpi-bin and libopenmpi-dev): building Horovod with Gloo only"
  fi
  say "      building Horovod $HOROVOD_VERSION for TensorFlow $SOK_TENSORFLOW, once: 2 to 8 minutes (log: $log)"
  env PATH="$(sok_env)/bin:$PATH" HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 \
    HOROVOD_WITH_GLOO=1 "${with_mpi[@]}" CMAKE_POLICY_VERSION_MINIMUM=3.5 MAKEFLAGS="-j$(nproc)" \
    "$(sok_python)" -m pip wheel --no-deps --no-build-isolation -w "$folder/dist" "$folder/source" > "$log" 2>&1 ||
    fail "Horovod could not be built. The full log is in $log. Its last lines:" "$(tail -n 15 "$log")" \
      "Only training on several ranks needs it; for the rest, run tools/setup.sh."
  mkdir -p "$(horovod_wheel_folder)"
  mv "$folder"/dist/horovod-*.whl "$(horovod_wheel_folder)/"
  rm -rf "$folder" "$log"
}
