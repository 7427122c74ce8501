#!/usr/bin/env bash
# Compares the public API of each crate with its listing, so that each change of an API is visible in a commit:
# `api.txt` next to this script, and in the folders of the other crates. `run.sh --write` updates the listings.
#
# `list.py` creates a listing from rustdoc's JSON, whose format depends on the version of Rust.
set -euo pipefail
cd "$(dirname "$0")/../.."
rust=1.95.0
# Each crate, its folder, its listing, and how many items marked `pub` its code may have.
crates="turnstream . tests/public_api/api.txt 1503
turnstream-macros crates/macros crates/macros/api.txt 3
turnstream-mcp crates/mcp crates/mcp/api.txt 53
turnstream-otel crates/otel crates/otel/api.txt 28
turnstream-postgres crates/postgres crates/postgres/api.txt 18
turnstream-prices crates/prices crates/prices/api.txt 5
turnstream-redis crates/redis crates/redis/api.txt 10
turnstream-restate crates/restate crates/restate/api.txt 28
turnstream-server crates/server crates/server/api.txt 56
turnstream-sqlite crates/sqlite crates/sqlite/api.txt 5
turnstream-testing crates/testing crates/testing/api.txt 157"

command -v python3 >/dev/null || { apt-get update -qq && apt-get install -y -qq python3; } >/dev/null
cargo=(cargo)
if ! cargo --version | grep -q " $rust "; then
    rustup toolchain install "$rust" --profile minimal >/dev/null
    cargo=(rustup run "$rust" cargo)
fi
found=$(mktemp)
trap 'rm -f "$found"' EXIT
while read -r crate folder listing most; do
    # rustdoc writes JSON on stable Rust only with an option that accepts unstable output. With
    # RUSTDOCFLAGS="-D warnings", it also checks the docs.
    RUSTDOC="$PWD/tests/public_api/rustdoc.sh" "${cargo[@]}" rustdoc --quiet -p "$crate" --all-features --lib -- \
        -Z unstable-options --output-format json </dev/null
    python3 tests/public_api/list.py "${CARGO_TARGET_DIR:-target}/doc/${crate//-/_}.json" >"$found"
    if [ "${1:-}" = --write ]; then
        cp "$found" "$listing"
    elif ! diff -u "$listing" "$found"; then
        echo "public API: it differs from $listing; after an intended change, run tests/public_api/run.sh --write"
        exit 1
    fi
    items=$(grep -rhE '^\s*pub (async |const )?(fn|struct|enum|trait|type|const|static|mod|macro)\b' "$folder/src" | wc -l)
    echo "public API of $crate: as listed, $(wc -l <"$listing") lines; $items items marked \`pub\` (at most $most)"
    [ "$items" -le "$most" ]
done <<<"$crates"
