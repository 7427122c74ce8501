#!/usr/bin/env bash
# Runs all tests of the package `turnstream-restate`, which start their own Restate servers. If the server cannot be
# installed (install.sh), the script prints the reason and runs only the tests that need no server. If it is installed,
# no test may be skipped. `run.sh NAME` runs only the tests with that name.
set -euo pipefail
cd "$(dirname "$0")/../../.."

only=${1:-}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The same packages and features as in the other scripts, so that Cargo builds them once.
tests=()
for file in crates/restate/tests/*.rs; do tests+=(--test "$(basename "$file" .rs)"); done
test=(cargo test --workspace --all-features "${tests[@]}")

count() { # Counts the tests with this name and these options of the test runner.
    "${test[@]}" -q -- ${only:+"$only"} --list "$@" 2>/dev/null | grep -c ': test$' || true
}

run() { # Runs the tests with this name and these options of the test runner, and prints its closing lines.
    "${test[@]}" --no-fail-fast -- ${only:+"$only"} "$@" 2>&1 | tee "$log" |
        { grep --line-buffered -E '^( +Running |test |failures:|---- |thread |error|seed |violation)' || true; } ||
        { tail -150 "$log"; exit 1; }
}

# The last line of the output is the path. If the script fails, it writes the reason to stderr.
if ! server=$(crates/restate/tests/install.sh | tail -1); then
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
