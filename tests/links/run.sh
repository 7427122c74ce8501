#!/usr/bin/env bash
# Checks the links of the README files, of the other pages at the root, and of the guide:
#
# - A relative link or image leads to a file of the repository, and its anchor to a heading of that page.
# - Each label that is used is defined, and each definition is used. A target is not a rustdoc path.
# - In the guide, links have labels. `src/guide/links.md` contains the same labels and no others, except labels of
#   files that rustdoc cannot link, which begin with `example-`, `test-` or `file-`.
# - A code block has a language, and a Rust block of the README or the guide has no line that rustdoc hides.
#
# `run.sh FOLDER` checks another copy of the repository. `self_test.sh` checks that each kind of fault is detected.
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

# If there is no summary, awk has failed.
[ -n "$summary" ]
if [ "$faults" -gt 0 ]; then
    echo "links: $faults faults among $summary"
    exit 1
fi
echo "links: $summary are alive"
