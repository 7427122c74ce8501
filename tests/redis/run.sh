#!/usr/bin/env bash
# Runs the tests of hubs that share a Redis, with servers of their own. Where no server can be had, it says so and is
# content; once there is one, every test has to run. `run.sh NAME` runs only the tests of that name.
set -euo pipefail
cd "$(dirname "$0")/../.."

only=${1:-}
source tests/redis/install.sh

run=(cargo test -p turnstream --all-features --test redis --)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Some claims are about time, and a server takes its share of the machine.
"${run[@]}" --ignored --test-threads 3 ${only:+"$only"} | tee "$log"
wanted=$("${run[@]}" --ignored --list 2>/dev/null | grep -c ': test$')
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$log")
echo "redis: ${ran:-0} tests with a server ran, $((wanted - ${ran:-0})) were skipped"
[ "${ran:-0}" -gt 0 ] && { [ -n "$only" ] || [ "$ran" -eq "$wanted" ]; }
