#!/usr/bin/env bash
# Searches all prose in the repository for words that readers stumbled over: comments in Rust, in scripts and in the
# page, and Markdown. `words.tsv` has a pattern for each word, and better words. If the word is right in a line, add the
# line to `exceptions.txt`, as this script prints it. `code.py` searches identifiers, and texts for models and users.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/words
export LC_ALL=C

files() { git ls-files -co --exclude-standard -- "$@" | grep -vE "^($here/|tests/corpus/)" || true; }
text() {
    files '*.rs' | xargs grep -HE '^\s*//' | sed -E 's/^([^:]*):\s*\/\/[\/!]? ?/\1: /'
    files '*.sh' '*.awk' '*.py' '*.toml' '*.yaml' '*.yml' '.ci/*' | xargs grep -HE '^\s*# ' | sed -E 's/^([^:]*):\s*# ?/\1: /'
    files '*.js' '*.mjs' '*.ts' '*.css' | xargs grep -HE '^\s*(//|/?\*)' | sed -E 's/^([^:]*):\s*(\/\/|\/?\*+) ?/\1: /'
    files '*.md' | while read -r page; do sed "s|^|$page: |" "$page"; done
}
found=$(mktemp) all=$(mktemp) prose=$(mktemp)
trap 'rm -f "$found" "$all" "$prose"' EXIT
text >"$all"
# The same lines, without the name of the file, code, and phrases that are plain English.
sed -E 's/^[^:]*: //; s/`[^`]*`/`/g; s/[Tt]here (is|are|was|were) no\b//g; s/no longer//g' "$all" >"$prose"
cut -f1 "$here/words.tsv" | { grep -nEf - "$prose" || true; } | cut -d: -f1 |
    awk 'NR == FNR { wanted[$1]; next } FNR in wanted' - "$all" | sort -u >"$found"

hits=$(comm -23 "$found" <(sort -u "$here/exceptions.txt"))
gone=$(comm -13 "$found" <(sort -u "$here/exceptions.txt"))
if [ -n "$hits" ]; then
    printf '%s\n' "$hits"
    echo "words: these $(wc -l <<<"$hits") lines have words of $here/words.tsv, which also has better ones"
    exit 1
fi
if [ -n "$gone" ]; then
    printf '%s\n' "$gone"
    echo "words: these exceptions are not needed any more"
    exit 1
fi
echo "words: $(wc -l <"$all") lines, 0 with words of the list, $(wc -l <"$here/exceptions.txt") exceptions"
tests/words/code.py src 'crates/*/src/*' examples 'crates/*/examples/*'
