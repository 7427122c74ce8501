#!/usr/bin/env bash
# Compares the public API with the listing next to this script, so that each change of the API is visible
# in a commit. `run.sh --write` updates the listing.
#
# `cargo public-api` creates the listing from rustdoc's JSON, whose format depends on the version of
# Rust, so both versions are fixed here.
set -euo pipefail
cd "$(dirname "$0")/../.."
rust=1.95.0 tool=0.52.0
listing=tests/public_api/api.txt

cargo=(cargo)
if ! cargo --version | grep -q " $rust "; then
    rustup toolchain install "$rust" --profile minimal >/dev/null
    cargo=(rustup run "$rust" cargo)
fi
cargo public-api --version 2>/dev/null | grep -q " $tool\$" ||
    "${cargo[@]}" install --quiet --locked cargo-public-api --version "$tool"

# rustdoc writes JSON on stable Rust only with an option that accepts unstable output.
RUSTC_BOOTSTRAP=1 "${cargo[@]}" rustdoc --quiet -p turnstream --all-features --lib -- \
    -Z unstable-options --output-format json
found=$(mktemp)
trap 'rm -f "$found"' EXIT
cargo public-api --rustdoc-json "${CARGO_TARGET_DIR:-target}/doc/turnstream.json" -sss >"$found"

if [ "${1:-}" = --write ]; then
    cp "$found" "$listing"
elif ! diff -u "$listing" "$found"; then
    echo "public API: it differs from $listing; after an intended change, run tests/public_api/run.sh --write"
    exit 1
fi
items=$(grep -rhE '^\s*pub (async |const )?(fn|struct|enum|trait|type|const|static|mod|macro)\b' src | wc -l)
echo "public API: as listed, $(wc -l <"$listing") lines; $items items marked \`pub\` in src (at most 1600)"
[ "$items" -le 1600 ]
