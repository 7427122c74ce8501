#!/usr/bin/env bash
# Checks the links of the README files, of the other pages at the root, and of the guide:
#
# - A relative link or image leads to a file of the repository, and its anchor to a heading of that page.
# - A label that is used is defined, and a definition is used. A target is not a path of rustdoc.
# - In the guide, links have labels. They are in `src/guide/links.md` as well, which has no others, except those of
#   files that rustdoc cannot link: they begin with `example-`, `test-` or `file-`.
# - A code block has a language, and a Rust block of the README and of the guide no line that rustdoc hides.
#
# `run.sh FOLDER` checks another copy of the repository; `self_test.sh` shows that each of these is noticed.
set -euo pipefail
script=$(cd "$(dirname "$0")" && pwd)/links.awk
cd "${1:-$(dirname "$0")/../..}"
export LC_ALL=C
shopt -s globstar nullglob

files=()
[ -f src/guide/links.md ] && files+=(src/guide/links.md)
for file in README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md durable/README.md \
    examples/**/README.md durable/examples/**/README.md src/guide/*.md; do
    if [ -f "$file" ] && [ "$file" != src/guide/links.md ]; then files+=("$file"); fi
done

faults=0
fault() {
    printf '%s\n' "$1"
    faults=$((faults + 1))
}
summary=
while IFS=$'\t' read -r kind first second; do
    case $kind in
        fault) fault "$first" ;;
        file) [ -e "$second" ] || fault "$first: $second does not exist" ;;
        count) summary="$first links in $second files" ;;
    esac
done < <(awk -f "$script" "${files[@]}")

# Without a summary, awk has failed.
[ -n "$summary" ]
if [ "$faults" -gt 0 ]; then
    echo "links: $faults faults among $summary"
    exit 1
fi
echo "links: $summary are alive"
