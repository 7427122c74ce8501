#!/usr/bin/env bash
# Follows the instructions of the README: creates a project with its lines for `Cargo.toml`, and compiles and
# runs each of its programs there. Also checks its links, its length, and the length of the guide.
set -euo pipefail
cd "$(dirname "$0")/../.."

lines=$(wc -l <README.md)
[ "$lines" -le 170 ] || { echo "README: $lines lines, at most 170"; exit 1; }

# The words of all pages, with code and the cells of tables, but without the lines that define links (`[label]: target`).
words=$(find src/guide -name '*.md' ! -name links.md -exec grep -hvE '^\[[^]]+\]: ' {} + | tr -d '|' | wc -w)
[ "$words" -le 21500 ] || { echo "guide: $words words, at most 21500"; exit 1; }

links=0
while read -r link; do
    [ -e "$link" ] || { echo "README: there is no $link"; exit 1; }
    links=$((links + 1))
done < <(grep -oE '\]\([^)#]+\)' README.md | sed 's/^](//; s/)$//' | grep -v '^https\?://')

source tests/readme/new_project.sh
new_project
programs=$(grep -c '^```rust$' README.md)
for ((n = 1; n <= programs; n++)); do
    awk -v n="$n" '/^```rust$/ { on = (++found == n); next } /^```$/ { on = 0 } on' README.md \
        >"$project/src/main.rs"
    cargo run --quiet --manifest-path "$project/Cargo.toml" >/dev/null
done
echo "README: $programs programs ran in a new project, $links links lead somewhere, $lines lines; guide: $words words"
