#!/usr/bin/env bash
# Prints random sentences from the docs of all crates, so that a reader can judge their style: `draw.sh [SEED] [COUNT]`. In
# the same tree, the same seed prints the same sentences. Code, tables, headings and lines of links are skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
seed=${1:-$RANDOM} count=${2:-40}

sentences() {
    git ls-files 'src/*.rs' 'crates/*/src/*.rs' | grep -vE '(^|/)tests?(/|\.rs$)|_tests?\.rs$' | sort | xargs awk '
        function flush(    parts, n, i, s) {
            n = split(paragraph, parts, /[.?!] +|[.?!]$/)
            for (i = 1; i <= n; i++) {
                s = parts[i]
                if (split(s, words_of_s, / +/) >= 5) print at ": " s
            }
            paragraph = ""
        }
        FNR == 1 { flush(); code = 0 }
        {
            if ($0 !~ /^[ \t]*\/\/[\/!]/) { flush(); code = 0; next }
            line = $0
            sub(/^[ \t]*\/\/[\/!] ?/, "", line)
            if (line ~ /^ *```/) { flush(); code = !code; next }
            if (code) next
            if (line ~ /^ *$/ || line ~ /^#/ || line ~ /^\|/ || line ~ /^\[.*\]: /) { flush(); next }
            if (line ~ /^ *[-*] /) { flush(); sub(/^ *[-*] /, "", line) }
            if (paragraph == "") at = FILENAME ":" FNR
            paragraph = paragraph (paragraph == "" ? "" : " ") line
        }
        END { flush() }'
}

all=$(sentences)
echo "seed $seed: $count of $(wc -l <<<"$all") sentences"
awk -v seed="$seed" 'BEGIN { srand(seed); rand() } { printf "%.9f\t%s\n", rand(), $0 }' <<<"$all" | sort | cut -f2- | head -n "$count" || true
