#!/usr/bin/env bash
# Attacks checkpoints for longer than the tests of them do: kills processes during saves, lets processes save to one
# folder at the same time, damages files at random, and kills tasks of parameter servers at random, half a minute for
# each time. Ends with `N passed, N failed`.
#
# Usage: tools/attack.sh [TIMES [SEED]]
#   TIMES    how many times as many attacks as in a run of the tests: 20 by default
#   SEED     of the kills of tasks: 1 by default
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

case "${1:-}" in
  -h | --help) print_usage ;;
esac
times="${1:-20}"
tests=(//tests:{checkpoint_kill,checkpoint_verify,hostile_paths,malformed_checkpoint}_test
  //tests:parameter_server_kills_test)
exec "$SOK_ROOT/tools/test.sh" --test_timeout=36000 --test_env=SOK_TEST_KILLS=$((12 * times)) \
  --test_env=SOK_TEST_RANK_KILLS=$((4 * times)) --test_env=SOK_TEST_CONCURRENT_SAVES=$((30 * times)) \
  --test_env=SOK_TEST_CORRUPTIONS=$((40 * times)) --test_env=SOK_TEST_SERVER_KILL_SECONDS=$((30 * times)) \
  --test_env=SOK_TEST_SERVER_KILL_SEED="${2:-1}" "${tests[@]}"
