#!/usr/bin/env bash
# Follows the instructions of the README: creates a project with its lines for `Cargo.toml`, and compiles and
# runs each of its programs there. Also checks its links and its length.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}" CARGO_TERM_COLOR=never

lines=$(wc -l <README.md)
[ "$lines" -le 180 ] || { echo "README: $lines lines, at most 180"; exit 1; }

links=0
while read -r link; do
    [ -e "$link" ] || { echo "README: there is no $link"; exit 1; }
    links=$((links + 1))
done < <(grep -oE '\]\([^)#]+\)' README.md | sed 's/^](//; s/)$//' | grep -v '^https\?://')

mkdir "$project/src"
cp Cargo.lock "$project/"
{
    printf '[package]\nname = "from-the-readme"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n\n'
    awk '/^```toml$/ { on = 1; next } /^```$/ { on = 0 } on' README.md |
        sed "s|path = \"../turnstream\"|path = \"$root\"|"
} >"$project/Cargo.toml"

programs=$(grep -c '^```rust$' README.md)
for ((n = 1; n <= programs; n++)); do
    awk -v n="$n" '/^```rust$/ { on = (++found == n); next } /^```$/ { on = 0 } on' README.md \
        >"$project/src/main.rs"
    cargo run --quiet --manifest-path "$project/Cargo.toml" >/dev/null
done
echo "README: $programs programs ran in a new project, $links links lead somewhere, $lines lines"
