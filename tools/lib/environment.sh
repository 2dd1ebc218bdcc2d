# shellcheck shell=bash
# Sourced by tools/setup.sh: the Python environment and Bazel's configuration for it.

readonly NEEDED_GB=5  # TensorFlow, the tools beside it, and Horovod's build while it lasts

# Prints a Python 3.11, or nothing.
find_base_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2> /dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
}

# The files that an environment is made from.
requirement_files() {
  local folder="$SOK_ROOT/tools/requirements"
  printf '%s\n' "$folder/tensorflow-$SOK_TENSORFLOW.txt" "$folder/build.txt" "$folder/dev.txt" \
    "$folder/constraints-$SOK_TENSORFLOW.txt"
  find "$folder" -name "no-deps-$SOK_TENSORFLOW.txt"
}

requirements_hash() { requirement_files | xargs cat | sha256sum | cut -c 1-16; }

# What the environment was made from: the requirements' hash and, where Horovod is installed, its version.
environment_stamp() { cat "$(sok_env)/.stamp" 2> /dev/null || true; }

has_horovod() { [ "$(environment_stamp)" = "$(requirements_hash) horovod-$HOROVOD_VERSION" ]; }

check_disk() {
  local free
  free="$(df -Pk "$SOK_HOME" | awk 'NR == 2 { print int($4 / 1048576) }')"
  [ "$free" -ge "$NEEDED_GB" ] ||
    fail "$SOK_HOME has $free GB free and an environment takes $NEEDED_GB while it is made. Free some space, or set" \
      "SOK_HOME to a folder on another disk, and run this again."
}

make_environment() {
  local env hash made
  env="$(sok_env)"
  hash="$(requirements_hash)"
  made="$(environment_stamp)"
  if [ "${made%% *}" != "$hash" ]; then
    check_disk
    if [ -n "$made" ]; then
      say "      The environment in $env is old: it was made from other requirements. Making it anew."
    elif [ -e "$env" ]; then
      say "      The environment in $env was left unfinished. Making it anew."
    fi
    rm -rf "$env"
    install_python_packages
    printf '%s without' "$hash" > "$env/.stamp"
  fi
  if [ "$SOK_HOROVOD" = 1 ] && ! has_horovod; then
    check_disk
    install_horovod
    printf '%s horovod-%s' "$hash" "$HOROVOD_VERSION" > "$env/.stamp"
  fi
}

install_python_packages() {
  local env python requirements=() without_dependencies=() file
  env="$(sok_env)"
  python="$(find_base_python)"
  [ -n "$python" ] ||
    fail "Python 3.11 is needed and neither python3.11 nor python3 is one here ($(python3 --version 2>&1 || true))." \
      "Install it, or set PYTHON to the path of one, and run this again."
  say "[2/3] Python packages with TensorFlow $SOK_TENSORFLOW, into $env: 1 to 3 minutes"
  "$python" -m venv "$env" || fail "$python could not make a virtual environment: is python3-venv installed?"
  while read -r file; do
    case "$file" in
      */constraints-*) requirements+=(-c "$file") ;;
      */no-deps-*) without_dependencies+=(-r "$file") ;;
      *) requirements+=(-r "$file") ;;
    esac
  done < <(requirement_files)
  build_engine &
  local engine=$!
  pip_install "${requirements[@]}"
  [ ${#without_dependencies[@]} = 0 ] || pip_install --no-deps "${without_dependencies[@]}"
  # What needs the engine builds it again, and tells what is wrong.
  wait "$engine" || true
}

# Of the op library, the part that needs no TensorFlow: it is built while pip downloads and unpacks that.
build_engine() {
  write_bazel_configuration
  # The lock of the set-up is closed: a Bazel server that starts here would hold it.
  sok_bazel build --jobs="$(nproc)" //cc/checkpoint //cc/group //cc/sharded //cc/table > /dev/null 2>&1 9>&-
}

pip_install() {  # pip_install PIP_ARGUMENT...
  local log
  log="$(sok_env)/pip.log"
  "$(sok_python)" -m pip install --disable-pip-version-check --no-input "$@" >> "$log" 2>&1 ||
    fail "pip could not install the packages: is there a network, and can it reach a package index? The whole" \
      "log is in $log. Its errors:" "$(grep ERROR "$log" | tail -n 3)"
}

install_horovod() {
  say "[3/3] Horovod"
  build_horovod_wheel
  pip_install --no-deps --force-reinstall "$(horovod_wheel)"
}

# Writes $1 if its contents differ from the standard input: Bazel rereads a file that was touched.
write_if_changed() {
  local contents
  contents="$(cat)"
  if [ "$contents" != "$(cat "$1" 2> /dev/null || true)" ]; then printf '%s\n' "$contents" > "$1"; fi
}

write_bazel_configuration() {
  local command horovod_source=
  # Where it has been fetched, whoever asks: else builds would alternate between two configurations.
  [ ! -e "$HOROVOD_SOURCE/setup.py" ] || horovod_source="$HOROVOD_SOURCE"
  {
    echo "# Written by tools/setup.sh; personal settings belong in .bazelrc.user."
    # A query that lacked them would throw away the repositories that a build made.
    for command in build query; do
      echo "$command --repo_env=SOK_PYTHON=$(sok_python)"
      echo "$command --repo_env=SOK_ENV_STAMP=$(requirements_hash)"
      # Always named: an empty one hides whatever the caller's shell has set.
      echo "$command --repo_env=SOK_HOROVOD=$horovod_source"
    done
    echo "build --disk_cache=$SOK_HOME/bazel"
    if [ "$SOK_TENSORFLOW" != "$SOK_DEFAULT_TENSORFLOW" ]; then
      echo "build --symlink_prefix=bazel-tf/$SOK_TENSORFLOW-"
    fi
  } | write_if_changed "$(sok_env).bazelrc"
  if [ "$SOK_TENSORFLOW" = "$SOK_DEFAULT_TENSORFLOW" ]; then
    write_if_changed "$SOK_ROOT/.bazelrc.env" < "$(sok_env).bazelrc"
  fi
  # The links to one version's outputs would be packages to another's Bazel, which does not know them for links.
  printf '%s\n' bazel-bin bazel-out bazel-testlogs "bazel-$(basename "$SOK_ROOT")" bazel-tf |
    write_if_changed "$SOK_ROOT/.bazelignore"
  command -v nvcc > /dev/null || [ -n "${CUDA_HOME:-}" ] ||
    say "No CUDA toolkit (nvcc) here: the library is built for the CPU only."
}
