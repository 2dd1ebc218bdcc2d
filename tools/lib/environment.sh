# shellcheck shell=bash
# Sourced by tools/setup.sh: the Python environment and Bazel's configuration for it.

readonly NEEDED_GB=5  # for TensorFlow, the other packages, and Horovod's build folder

# The Python version for the TensorFlow version's environment: the one named in its requirements on a separate line,
# such as `# Python 3.7`, or else 3.11.
needed_python() {
  local version
  if [ -n "$SOK_PYTHON" ]; then
    "$SOK_PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
    return
  fi
  version="$(sed -n 's/^# Python \([0-9.]*\)$/\1/p' "$SOK_ROOT/tools/requirements/tensorflow-$SOK_TENSORFLOW.txt")"
  printf '%s' "${version:-3.11}"
}

# Prints the path of a Python of the needed version, or nothing. Debian's, if it is complete, comes before others on the
# path: it is compiled with profile-guided optimization, and builds graphs in one seventh less time than pyenv's.
find_base_python() {
  local candidate version debian
  if [ -n "$SOK_PYTHON" ]; then
    printf '%s\n' "$SOK_PYTHON"
    return 0
  fi
  version="$(needed_python)"
  debian="/usr/bin/python$version"
  local complete='import ensurepip, os, sysconfig, venv; os.stat(sysconfig.get_path("include") + "/Python.h")'
  "$debian" -c "$complete" 2> /dev/null || debian=
  for candidate in ${PYTHON:-} $debian "python$version" python3 "$HOME/.pyenv/versions/$version".*/bin/python; do
    if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2> /dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
}

# Prints the files that define an environment.
requirement_files() {
  local folder version
  folder="$SOK_ROOT/tools/requirements"
  version="$(needed_python)"
  # The packages that the tests need and the caller's Python lacks.
  if [ -n "$SOK_PYTHON" ]; then
    printf '%s\n' "$folder/beside-another-tensorflow.txt"
    return
  fi
  printf '%s\n' "$folder/tensorflow-$SOK_TENSORFLOW.txt"
  if [ -e "$folder/python$version.txt" ]; then
    printf '%s\n' "$folder/python$version.txt"
  else
    printf '%s\n' "$folder/build.txt" "$folder/dev.txt"
  fi
  printf '%s\n' "$folder/constraints-$SOK_TENSORFLOW.txt"
  find "$folder" -name "no-deps-$SOK_TENSORFLOW.txt"
}

requirements_hash() {
  {
    requirement_files | xargs cat
    # The caller may install a different TensorFlow.
    [ -z "$SOK_PYTHON" ] || "$SOK_PYTHON" -c 'import importlib.util as util, os
path = util.find_spec("tensorflow").origin
print(path, os.stat(path).st_mtime)' 2> /dev/null || true
  } | sha256sum | cut -c 1-16
}

# What the environment contains: the hash of its requirements, and Horovod's version if that is installed.
environment_stamp() { cat "$(sok_env)/.stamp" 2> /dev/null || true; }

has_horovod() { [ "$(environment_stamp)" = "$(requirements_hash) horovod-$HOROVOD_VERSION" ]; }

check_disk() {
  local free
  free="$(df -Pk "$SOK_HOME" | awk 'NR == 2 { print int($4 / 1048576) }')"
  [ "$free" -ge "$NEEDED_GB" ] ||
    fail "$SOK_HOME has $free GB free, but making an environment needs $NEEDED_GB GB. Free some space, or set" \
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
      say "      The requirements of the environment in $env have changed. Making it again."
    elif [ -e "$env" ]; then
      say "      The environment in $env is incomplete. Making it again."
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
  if [ -n "$SOK_PYTHON" ]; then
    put_environment_on_top
    return
  fi
  python="$(find_base_python)"
  [ -n "$python" ] ||
    fail "Python $(needed_python) is needed for TensorFlow $SOK_TENSORFLOW, but neither python$(needed_python) nor python3" \
      "is that ($(python3 --version 2>&1 || true)). Install it, or set PYTHON to its path, and run this again."
  say "[2/3] Python packages with TensorFlow $SOK_TENSORFLOW, into $env: 1 to 3 minutes"
  "$python" -m venv "$env" || fail "$python could not make a virtual environment: is python3-venv installed?"
  while read -r file; do
    case "$file" in
      */constraints-*) requirements+=(-c "$file") ;;
      */no-deps-*) without_dependencies+=(-r "$file") ;;
      *) requirements+=(-r "$file") ;;
    esac
  done < <(requirement_files)
  # Only for the default version, whose ABI is the compiler's default; that of others is not known yet.
  [ "$SOK_TENSORFLOW" != "$SOK_DEFAULT_TENSORFLOW" ] || build_engine &
  local engine=$!
  pip_install "${requirements[@]}"
  [ ${#without_dependencies[@]} = 0 ] || pip_install --no-deps "${without_dependencies[@]}"
  # Its errors are ignored here: the builds that need the engine report them.
  wait "$engine" || true
}

# Makes an environment on top of the caller's Python: it sees that Python's packages, and contains the missing ones.
# Nothing is installed among the caller's packages.
put_environment_on_top() {
  local env packages error pip=()
  env="$(sok_env)"
  error="$("$SOK_PYTHON" -c 'import tensorflow' 2>&1 > /dev/null)" ||
    fail "$SOK_PYTHON cannot import TensorFlow:" "$(tail -n 9 <<< "$error")"
  say "[2/3] An environment on top of $SOK_PYTHON, in $env: the packages that tests need"
  # Where it has pip, no ensurepip is needed, which Debian has in another package.
  ! "$SOK_PYTHON" -m pip --version > /dev/null 2>&1 || pip=(--without-pip)
  "$SOK_PYTHON" -m venv "${pip[@]}" "$env" || fail "$SOK_PYTHON could not make a virtual environment."
  packages="$("$SOK_PYTHON" -c 'import sys; print(*[p for p in sys.path if p.endswith(("site-packages", "dist-packages"))], sep="\n")')"
  printf '%s\n' "$packages" > "$("$(sok_python)" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/on_top.pth"
  pip_install -r "$(requirement_files)"
}

# Builds the part of the op library that does not need TensorFlow, while pip installs TensorFlow.
build_engine() {
  write_bazel_configuration
  # Closes file descriptor 9, the lock of the set-up: a Bazel server that starts here would keep it.
  sok_bazel build --jobs="$(nproc)" //cc/checkpoint //cc/cpu/group //cc/cpu/sharded //cc/cpu/table > /dev/null 2>&1 9>&-
}

pip_install() {  # pip_install PIP_ARGUMENT...
  local log
  log="$(sok_env)/pip.log"
  "$(sok_python)" -m pip install --disable-pip-version-check --no-input "$@" >> "$log" 2>&1 ||
    fail "pip could not install the packages. Can this machine reach a package index? The full log is in $log." \
      "Its errors:" "$(grep ERROR "$log" | tail -n 3)"
}

install_horovod() {
  say "[3/3] Horovod"
  build_horovod_wheel
  pip_install --no-deps --force-reinstall "$(horovod_wheel)"
}

# Writes standard input to the file $1 if that differs: Bazel rereads a file whose time changes.
write_if_changed() {
  local contents
  contents="$(cat)"
  if [ "$contents" != "$(cat "$1" 2> /dev/null || true)" ]; then printf '%s\n' "$contents" > "$1"; fi
}

# TensorFlow's flag for the ABI of the standard library, if it has one: whatever is linked with it needs the same. Kept
# in a file, because importing TensorFlow takes seconds.
abi_flag() {
  local file
  file="$(sok_env)/.abi_flag"
  if [ ! -e "$file" ] && [ -n "$(environment_stamp)" ]; then
    TF_CPP_MIN_LOG_LEVEL=3 "$(sok_python)" -c \
      'import tensorflow as tf; print(*[f for f in tf.sysconfig.get_compile_flags() if "CXX11_ABI" in f])' \
      2> "$file.log" | tail -n 1 > "$file.new" || fail "TensorFlow cannot be imported:" "$(tail -n 3 "$file.log")"
    mv "$file.new" "$file"
  fi
  cat "$file" 2> /dev/null || true
}

write_bazel_configuration() {
  local command abi horovod_source=
  # Set whenever the source exists, whatever the options: otherwise builds would alternate between two configurations.
  [ ! -e "$HOROVOD_SOURCE/setup.py" ] || horovod_source="$HOROVOD_SOURCE"
  abi="$(abi_flag)"
  {
    echo "# Written by tools/setup.sh; personal settings belong in .bazelrc.user."
    # For queries too: with other values, a query would discard the repositories of the build.
    for command in build query; do
      echo "$command --repo_env=SOK_PYTHON=$(sok_python)"
      echo "$command --repo_env=SOK_ENV_STAMP=$(requirements_hash)"
      # Always set, if only to the empty string, which overrides a value from the caller's shell.
      echo "$command --repo_env=SOK_HOROVOD=$horovod_source"
    done
    echo "build --disk_cache=$SOK_HOME/bazel"
    # The compiler's default is 1.
    [[ "$abi" != *=0 ]] || echo "build --cxxopt=$abi"
    if [ "$SOK_TENSORFLOW" != "$SOK_DEFAULT_TENSORFLOW" ]; then
      echo "build --symlink_prefix=bazel-tf/$(sok_name)-"
    fi
  } | write_if_changed "$(sok_env).bazelrc"
  if [ "$SOK_TENSORFLOW" = "$SOK_DEFAULT_TENSORFLOW" ]; then
    write_if_changed "$SOK_ROOT/.bazelrc.env" < "$(sok_env).bazelrc"
  fi
  # Otherwise Bazel would treat the links to other versions' outputs as packages.
  printf '%s\n' bazel-bin bazel-out bazel-testlogs "bazel-$(basename "$SOK_ROOT")" bazel-tf |
    write_if_changed "$SOK_ROOT/.bazelignore"
  command -v nvcc > /dev/null || [ -n "${CUDA_HOME:-}" ] ||
    say "No CUDA toolkit (nvcc) found: the library is built for the CPU only."
}
