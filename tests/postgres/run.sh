#!/usr/bin/env bash
# Runs the tests of `PostgresStore` that need a server, which they start themselves. Where PostgreSQL cannot be had
# (install.sh), it says so and is content; once it is there, every such test has to run. `run.sh NAME` runs only the
# tests of that name.
set -euo pipefail
cd "$(dirname "$0")/../.."

only=${1:-}
source tests/postgres/install.sh
cargo build -q -p turnstream --all-features --example crash
export TURNSTREAM_CRASH=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/examples/crash
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo test -p turnstream --all-features --test postgres -- --ignored --nocapture ${only:+"$only"} 2>&1 | tee "$log" |
    { grep -E '^(test |race: |kills |server kills |failures|---- |thread |error)' || true; }
tail -5 "$log" | grep -q '^test result: ok' || { tail -100 "$log"; exit 1; }
# Those that the shared suite has are not written here.
wanted=$(cargo test -q -p turnstream --all-features --test postgres -- --ignored --list 2>/dev/null |
    grep -c ': test$')
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$log")
echo "postgres: ${ran:-0} tests with a server ran, $((wanted - ${ran:-0})) were skipped"
[ "${ran:-0}" -gt 0 ] && { [ -n "$only" ] || [ "$ran" -eq "$wanted" ]; }
