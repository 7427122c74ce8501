#!/usr/bin/env bash
# Looks in doc comments, the README and the guide for words that readers stumbled over; `words.tsv` has each,
# and what to write instead. Lines that had one before the list was made are in `known.txt`, which only gets
# shorter: `run.sh --prune` takes out those that are gone. A line where the word is right belongs into
# `exceptions.txt`.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/words
export LC_ALL=C

text() {
    grep -rnE '^\s*//[/!]' src examples --include='*.rs' | sed -E 's/^([^:]*):[0-9]+:\s*\/\/[\/!] ?/\1: /'
    for page in README.md src/guide/*.md; do sed "s|^|$page: |" "$page"; done
}
found=$(mktemp) all=$(mktemp) prose=$(mktemp)
trap 'rm -f "$found" "$all" "$prose"' EXIT
text >"$all"
# Line for line the same, without the file's name and without code.
sed -E 's/^[^:]*: //; s/`[^`]*`/`/g' "$all" >"$prose"
cut -f1 "$here/words.tsv" | grep -nEf - "$prose" | cut -d: -f1 | awk 'NR == FNR { wanted[$1]; next } FNR in wanted' - "$all" |
    sort -u >"$found"

if [ "${1:-}" = --prune ]; then
    comm -12 <(sort -u "$here/known.txt") "$found" >"$all"
    cp "$all" "$here/known.txt"
fi
new=$(comm -23 "$found" <(sort -u "$here/known.txt" "$here/exceptions.txt"))
if [ -n "$new" ]; then
    printf '%s\n' "$new"
    echo "words: these lines have words of $here/words.tsv, which also has better ones"
    exit 1
fi
echo "words: no new line; $(wc -l <"$here/known.txt") from before, $(wc -l <"$here/exceptions.txt") exceptions"
