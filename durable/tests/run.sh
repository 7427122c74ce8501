#!/usr/bin/env bash
# Runs all tests of the package `turnstream-restate`, which start their Restate servers themselves. Where the server
# cannot be installed (install.sh), the script says so and runs only the tests that need none; once it is installed,
# none may be skipped. `run.sh NAME` runs only the tests of that name.
set -euo pipefail
cd "$(dirname "$0")/.."

only=${1:-}
# A test that only starts the workers of others.
skip=(--skip a_worker_process)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

count() { # The tests of this name with these options of the runner.
    cargo test -q --all-features --tests -- ${only:+"$only"} "${skip[@]}" --list "$@" 2>/dev/null | grep -c ': test$' || true
}

run() { # Runs the tests of this name with these options of the runner, and prints each of its closing lines.
    cargo test --no-fail-fast --all-features --tests -- ${only:+"$only"} "${skip[@]}" "$@" 2>&1 | tee "$log" |
        { grep --line-buffered -E '^( +Running |test |failures:|---- |thread |error)' || true; } ||
        { tail -150 "$log"; exit 1; }
}

# The last line of its output is the path; the reason of a failure is on its standard error.
if ! server=$(tests/install.sh | tail -1); then
    run
    echo "restate: 0 tests with a server ran, $(count --ignored) were skipped"
    exit
fi
export TURNSTREAM_RESTATE_SERVER=$server

wanted=$(count --ignored)
plain=$(($(count) - wanted))
run --include-ignored
passed=$(awk '/^test result: ok/ { sum += $4 } END { print sum + 0 }' "$log")
ran=$((passed - plain))
echo "restate: $ran tests with a server ran, $((wanted - ran)) were skipped"
[ "$ran" -gt 0 ] && [ "$ran" -eq "$wanted" ]
