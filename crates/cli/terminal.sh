#!/usr/bin/env bash
# Records the program in a terminal and writes the picture `terminal.svg`. Needs asciinema 2 (PyPI),
# and npm for svg-term-cli.
set -euo pipefail
cd "$(dirname "$0")/../.."
question="How many lines of Rust are in src, and which file is the longest?"
cargo build --quiet -p turnstream-cli
cast=$(mktemp) command=$(mktemp)
trap 'rm -f "$cast" "$command"' EXIT
printf 'printf "$ cargo run -- \\"%s\\"\\n"\n%s "%s"\n' \
    "$question" "${CARGO_TARGET_DIR:-target}/debug/turnstream" "$question" >"$command"
asciinema rec --overwrite --quiet --cols 100 --rows 21 --command "bash $command" "$cast"
# The place of this clone is of no interest.
sed -i "s#$PWD#~/turnstream#" "$cast"
npx --yes svg-term-cli@2.1.1 --in "$cast" --at 600000 --window --no-cursor \
    --out crates/cli/terminal.svg
