#!/usr/bin/env bash
# Runs the tests of hubs that share a Redis server; they start their own servers. If no server can be installed, the
# script prints the reason and succeeds; if one is installed, no test may be skipped. `run.sh NAME` runs only the tests
# with that name.
set -euo pipefail
cd "$(dirname "$0")/../../.."

only=${1:-}
source crates/redis/tests/install.sh

run=(cargo test -p turnstream-redis --all-features --test redis --)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Some tests check times, and each server uses part of the machine.
"${run[@]}" --ignored --test-threads 3 ${only:+"$only"} | tee "$log"
wanted=$("${run[@]}" --ignored --list 2>/dev/null | grep -c ': test$')
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$log")
echo "redis: ${ran:-0} tests with a server ran, $((wanted - ${ran:-0})) were skipped"
[ "${ran:-0}" -gt 0 ] && { [ -n "$only" ] || [ "$ran" -eq "$wanted" ]; }
