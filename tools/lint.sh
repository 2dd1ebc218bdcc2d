#!/usr/bin/env bash
# Checks formatting and rules without changing files. With --fix, formats, and fixes what the tools can fix.
#
# Usage: tools/lint.sh [--tensorflow VERSION] [--fix]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$SOK_ROOT/tools/lib/packages.sh"

take_tensorflow_option "$@"
case "${SOK_ARGS[*]}" in
  '' | --fix) ;;
  -h | --help) print_usage ;;
  *) fail "tools/lint.sh has no option ${SOK_ARGS[*]} (see --help)." ;;
esac
cd "$SOK_ROOT"
tools/setup.sh
tool() { "$(sok_env)/bin/$1" "${@:2}"; }

failures=0
check() {  # check WHAT COMMAND...
  local output
  if output="$("${@:2}" 2>&1)"; then
    say "ok      $1"
  else
    say "failed  $1"
    say "$output"
    failures=$((failures + 1))
  fi
}

cpp_files() { find cc cuda sok_ops benchmarks tests -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh'; }
shell_files() { find tools .ci -name '*.sh' -o -path '.ci/*'; }

# Succeeds if no line of C++ and CUDA files under the folders matches; else prints the lines.
absent() {  # absent PATTERN FOLDER...
  ! grep -rnE --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' "$@"
}

check_shell_syntax() {
  local file
  while read -r file; do bash -n "$file" || return 1; done < <(shell_files)
}

# Clang's thread safety analysis of the sources that use locks or shared objects. Many kernels share a table's resource
# (resources.h): one of them is enough to check it.
check_thread_safety() {
  local tensorflow
  tensorflow="$(tool python -c 'import importlib.util as u; print(*u.find_spec("tensorflow").submodule_search_locations)')"
  {
    grep -rlE --include='*.cc' --exclude='*_test.cc' --exclude-dir=on_host \
      'Mutex|ObjectPool|LowestError|TableLocks|TablesAtWork' cc cuda sok_ops
    echo sok_ops/kernels/table_kernels.cc
  } | xargs -n 4 -P "$(nproc)" clang++ -std=c++17 -fsyntax-only -I. -isystem "$tensorflow/include" \
    -isystem cuda/on_host/include -Wno-everything -Wthread-safety -Werror
}

# A tag with a slip of the pen would take the test out of its lane.
well_formed_tags() {
  ! grep -niE '^# *(tags?|not on gpus?)\b' tests/*_test.py |
    grep -vE ':[12]:# (Tags: ((slow|versions|old_version)(, |$))+|Not on GPUs: .+)$'
}

# Whether what programs and tests import from modules, and take from them, is there. They have few types, so other errors
# of mypy say nothing.
check_own_imports() {
  local problems
  # Two programs have the same name.
  problems="$(missing_names --exclude sok/dlrm.py benchmarks examples tests tools && missing_names examples/sok/dlrm.py)"
  [ -z "$problems" ] || { printf '%s\n' "$problems"; return 1; }
}
missing_names() {
  MYPYPATH=benchmarks:examples:examples/deeprec/zoo:examples/sok:examples/transformer:tests:tools tool mypy \
    --check-untyped-defs --explicit-package-bases --follow-imports=silent "$@" |
    grep -E 'module named|error: Module .*has no attribute|prevented further checking' || true
}

# engine_test is the only program that runs the tests of kernels on a device.
check_engine_tests() {
  local missing
  missing="$(sok_bazel query --noshow_progress \
    'filter("_test_on_host$", kind(cc_library, //cuda/...)) except deps(//cuda/programs:engine_test_on_host, 1)')" || return 1
  [ -z "$missing" ] || { printf 'Not in _TESTS of cuda/programs/BUILD: %s\n' "$missing"; return 1; }
}

if [ "${SOK_ARGS[*]}" = --fix ]; then
  cpp_files | xargs "$(sok_env)/bin/clang-format" -i
  tool ruff format --quiet .
  tool ruff check --quiet --fix . || true
fi

# shellcheck disable=SC2046  # no spaces in the names
check "C++ and CUDA formatting" tool clang-format --dry-run -Werror $(cpp_files)
check "Python formatting" tool ruff format --quiet --check .
# Without ruff's cache: the order of imports depends on other files too, and the cache is one entry a file.
check "Python rules" tool ruff check --no-cache --quiet --output-format concise .
check "layers of the Python package and of C++" "$(sok_python)" tools/check_layers.py
check "Python 3.7" "$(sok_python)" tools/check_python37.py
check "tags of tests" well_formed_tags
check "tests in cuda/programs:engine_test" check_engine_tests
check "planted mistakes fit their files" "$(sok_python)" tools/mutants.py --check
check "Python types" tool mypy
check "what programs and tests import" check_own_imports
check "no TensorFlow or Python below cc/ and cuda/" \
  absent '^ *# *include *[<"](tensorflow|tsl|xla|third_party|Python\.h)' cc cuda
check "versions of TensorFlow are asked for in sok_ops/kernels/tf_versions.h only" \
  absent 'TF_(MAJOR|MINOR|PATCH)_VERSION|TF_VERSION_STRING|SOK_TF_1' --exclude=tf_versions.h cc cuda sok_ops tests
check "no CUDA below cc/" absent '^ *# *include *<cuda' cc
check "shell syntax" check_shell_syntax
if command -v shellcheck > /dev/null; then
  # shellcheck disable=SC2046
  check "shell rules" shellcheck --external-sources --severity=warning $(shell_files)
fi
# CI installs clang; elsewhere, the check is left out if clang is missing.
[ "${CI:-}" != true ] || install_clang
if command -v clang++ > /dev/null; then
  check "thread safety" check_thread_safety
fi
[ "$failures" = 0 ] || fail "$failures checks failed; tools/lint.sh --fix repairs formatting and some rules."
