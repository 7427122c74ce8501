#!/usr/bin/env bash
# Runs the tests of `PostgresStore` that need a server; they start their own servers. If PostgreSQL cannot be installed
# (install.sh), the script prints the reason and succeeds; if it is installed, no test may be skipped. `run.sh NAME`
# runs only the tests with that name.
set -euo pipefail
cd "$(dirname "$0")/../../.."

only=${1:-}
source crates/postgres/tests/install.sh
cargo build -q --workspace --all-features --example postgres_crash
export TURNSTREAM_CRASH=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/examples/postgres_crash
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo test --workspace --all-features --test postgres -- --ignored --nocapture ${only:+"$only"} 2>&1 | tee "$log" |
    { grep -E '^(test |race: |kills |server kills |failures|---- |thread |error)' || true; }
tail -5 "$log" | grep -q '^test result: ok' || { tail -100 "$log"; exit 1; }
# The list includes the tests of the shared suite, which are defined elsewhere.
wanted=$(cargo test -q --workspace --all-features --test postgres -- --ignored --list 2>/dev/null |
    grep -c ': test$')
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$log")
echo "postgres: ${ran:-0} tests with a server ran, $((wanted - ${ran:-0})) were skipped"
[ "${ran:-0}" -gt 0 ] && { [ -n "$only" ] || [ "$ran" -eq "$wanted" ]; }
