#!/usr/bin/env bash
# Compares the public API with the listing next to this script, so that each change of the API is visible
# in a commit. `run.sh --write` updates the listing.
#
# `list.py` creates the listing from rustdoc's JSON, whose format depends on the version of Rust.
set -euo pipefail
cd "$(dirname "$0")/../.."
rust=1.95.0
listing=tests/public_api/api.txt

command -v python3 >/dev/null || { apt-get update -qq && apt-get install -y -qq python3; } >/dev/null
cargo=(cargo)
if ! cargo --version | grep -q " $rust "; then
    rustup toolchain install "$rust" --profile minimal >/dev/null
    cargo=(rustup run "$rust" cargo)
fi
# rustdoc writes JSON on stable Rust only with an option that accepts unstable output. With RUSTDOCFLAGS="-D warnings",
# it also checks the docs.
RUSTDOC="$PWD/tests/public_api/rustdoc.sh" "${cargo[@]}" rustdoc --quiet -p turnstream --all-features --lib -- \
    -Z unstable-options --output-format json
found=$(mktemp)
trap 'rm -f "$found"' EXIT
python3 tests/public_api/list.py "${CARGO_TARGET_DIR:-target}/doc/turnstream.json" >"$found"

if [ "${1:-}" = --write ]; then
    cp "$found" "$listing"
elif ! diff -u "$listing" "$found"; then
    echo "public API: it differs from $listing; after an intended change, run tests/public_api/run.sh --write"
    exit 1
fi
items=$(grep -rhE '^\s*pub (async |const )?(fn|struct|enum|trait|type|const|static|mod|macro)\b' src | wc -l)
echo "public API: as listed, $(wc -l <"$listing") lines; $items items marked \`pub\` in src (at most 1545)"
[ "$items" -le 1545 ]
