# shellcheck shell=bash
# Sourced by the scripts in tools/: paths, messages and the choice of TensorFlow version.

SOK_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
# The folder of all files outside the checkout: environments, Horovod's wheels, Bazel's cache.
SOK_HOME="${SOK_HOME:-$HOME/.cache/sparse-operation-kit}"
SOK_DEFAULT_TENSORFLOW=2.15.1
SOK_TENSORFLOW="${SOK_TENSORFLOW:-$SOK_DEFAULT_TENSORFLOW}"
# The caller's own Python with a TensorFlow, used instead of an environment with SOK_TENSORFLOW.
SOK_PYTHON="${SOK_PYTHON:-}"

say() { printf '%s\n' "$*" >&2; }

fail() {
  printf '\n' >&2
  printf '%s\n' "$@" | fold -s -w 100 >&2
  exit 1
}

# Sets SOK_TENSORFLOW from `--tensorflow V`, SOK_PYTHON from `--python PATH`, and SOK_ARGS to the other arguments.
take_environment_options() {
  local arguments=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --python)
        [ $# -ge 2 ] || fail "--python needs the path of a Python that has TensorFlow."
        SOK_PYTHON="$2"
        shift
        ;;
      --python=*) SOK_PYTHON="${1#--python=}" ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  take_tensorflow_option "${arguments[@]}"
}

# Sets SOK_TENSORFLOW from `--tensorflow V` or `--tensorflow=V`, and SOK_ARGS to the other arguments.
take_tensorflow_option() {
  SOK_ARGS=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --tensorflow)
        [ $# -ge 2 ] || fail "--tensorflow needs a version, such as $SOK_DEFAULT_TENSORFLOW."
        SOK_TENSORFLOW="$2"
        shift
        ;;
      --tensorflow=*) SOK_TENSORFLOW="${1#--tensorflow=}" ;;
      *) SOK_ARGS+=("$1") ;;
    esac
    shift
  done
  check_tensorflow_version
}

check_tensorflow_version() {
  if [ -n "$SOK_PYTHON" ]; then
    command -v "$SOK_PYTHON" > /dev/null || fail "There is no Python at $SOK_PYTHON (--python, SOK_PYTHON)."
    # Absolute, whatever the folder it was named in; links stay, as virtual environments are found by them.
    SOK_PYTHON="$(realpath --no-symlinks "$(command -v "$SOK_PYTHON")")"
    SOK_TENSORFLOW="of $SOK_PYTHON"
    export SOK_PYTHON
    return
  fi
  if [ ! -e "$SOK_ROOT/tools/requirements/tensorflow-$SOK_TENSORFLOW.txt" ]; then
    fail "TensorFlow $SOK_TENSORFLOW is not one of the supported versions: $(supported_tensorflows)." \
      "A new one needs tools/requirements/tensorflow-$SOK_TENSORFLOW.txt and its constraints file."
  fi
  export SOK_TENSORFLOW
}

supported_tensorflows() {
  (cd "$SOK_ROOT/tools/requirements" && ls tensorflow-*.txt) | sed 's/^tensorflow-//; s/\.txt$//' | paste -sd' '
}

# The name of the environment, and of what is built for it.
sok_name() {
  if [ -n "$SOK_PYTHON" ]; then
    printf 'own-%s' "$(printf '%s' "$SOK_PYTHON" | cksum | cut -d ' ' -f 1)"
  else
    printf '%s' "$SOK_TENSORFLOW"
  fi
}

sok_env() { printf '%s' "$SOK_HOME/env/tf-$(sok_name)"; }

sok_python() { printf '%s' "$(sok_env)/bin/python"; }

# Whether TensorFlow was compiled with the C++ ABI of compilers before GCC 5, as 1.15 was. After tools/setup.sh.
has_old_abi() { grep -q 'CXX11_ABI=0$' "$(sok_env).bazelrc"; }

# The link to Bazel's outputs for the chosen TensorFlow version.
sok_bazel_link() {  # sok_bazel_link bin|testlogs
  if [ "$(sok_name)" = "$SOK_DEFAULT_TENSORFLOW" ]; then
    printf '%s' "$SOK_ROOT/bazel-$1"
  else
    printf '%s' "$SOK_ROOT/bazel-tf/$(sok_name)-$1"
  fi
}

# Runs Bazel for the chosen TensorFlow version. The outputs for the default version are where a plain `bazel` puts
# them. Each other version has its own outputs and server, so that switching versions rebuilds nothing.
sok_bazel() {
  if [ "$(sok_name)" = "$SOK_DEFAULT_TENSORFLOW" ]; then
    (cd "$SOK_ROOT" && bazel "$@")
  else
    (cd "$SOK_ROOT" && bazel --output_user_root="$SOK_HOME/bazel-tf-$(sok_name)" \
      --bazelrc="$(sok_env).bazelrc" "$@")
  fi
}

# Bazel's options for tests that write their files to memory, if the machine has enough: checkpoints are many small
# files, each flushed to its disk. The name is the same in each run, because Bazel caches results for identical options
# only. Each checkout and TensorFlow version has its own folder, because Bazel always gives a test the same folder below
# it.
sok_test_folder_options() {
  local folder available
  available="$(df --output=avail --block-size=1G /dev/shm 2> /dev/null | tail -n 1)"
  [ "${available:-0}" -ge 4 ] || return 0
  folder="/dev/shm/sparse-operation-kit-$(id -u)/$(printf '%s' "$SOK_ROOT $SOK_TENSORFLOW" | cksum | cut -d' ' -f1)"
  mkdir -p "$folder"
  printf '%s\n' "--test_tmpdir=$folder" "--test_env=TMPDIR=$folder"
}

# The targets of the Python tests whose files say so in their first lines: tests/README.md.
sok_tests_tagged() { sok_tests_that -lE "^# Tags: (.*, )?$1(,|$)"; }  # sok_tests_tagged TAG
sok_tests_on_gpus() { sok_tests_that -L '^# Not on GPUs: '; }
sok_tests_that() { (cd "$SOK_ROOT/tests" && grep "$@" ./*_test.py | sed 's#^\./\(.*\)\.py$#//tests:\1#'); }

# Like `sok_bazel test`, with a server that forks the Python tests: see tools/fork_server.py.
sok_bazel_test() {
  "$(sok_python)" "$SOK_ROOT/tools/fork_server.py" "$BASH" -c \
    'source "$0" && sok_bazel test "$@"' "$SOK_ROOT/tools/lib/common.sh" "$@"
}

# Prints the calling script's opening comment, and ends the script.
print_usage() {
  awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"
  exit 0
}
