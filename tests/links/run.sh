#!/usr/bin/env bash
# Checks the links of the README files, of the other pages at the root, and of the guide:
#
# - A relative link or image leads to a file of the repository, and its anchor to a heading of that page.
# - Each label that is used is defined, and each definition is used. A target is not a rustdoc path.
# - In a crate's guide, links have labels. Its `links.md` contains the same labels and no others, except labels of files
#   that rustdoc cannot link, which begin with `example-`, `test-` or `file-`.
# - A file that the page on the architecture names exists.
# - A code block has a language, and a Rust block of the README or the guide has no line that rustdoc hides.
#
# `run.sh FOLDER` checks another copy of the repository. `self_test.sh` checks that each kind of fault is detected.
set -euo pipefail
script=$(cd "$(dirname "$0")" && pwd)/links.awk
cd "${1:-$(dirname "$0")/../..}"
export LC_ALL=C
shopt -s globstar nullglob

faults=0 links=0 pages=0
fault() {
    printf '%s\n' "$1"
    faults=$((faults + 1))
}
# check GUIDE FILE…: checks the files, of which those in the folder GUIDE are the guide of a crate.
check() {
    local guide=$1 ended='' files=() file kind first second
    [ -f "${guide}links.md" ] && files+=("${guide}links.md")
    for file in "${@:2}"; do
        if [ -f "$file" ] && [ "$file" != "${guide}links.md" ]; then files+=("$file"); fi
    done
    while IFS=$'\t' read -r kind first second; do
        case $kind in
            fault) fault "$first" ;;
            file) [ -e "$second" ] || fault "$first: $second does not exist" ;;
            count) links=$((links + first)) pages=$((pages + second)) ended=1 ;;
        esac
    done < <(awk -v GUIDE="$guide" -v SHARED="${guide}links.md" -f "$script" "${files[@]}")
    # If there is no count, awk has failed.
    [ -n "$ended" ]
}
check src/guide/ README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md examples/**/README.md \
    src/guide/*.md
for crate in crates/*/; do
    [ -f "${crate}README.md" ] || continue
    check "${crate}src/guide/" "${crate}README.md" "$crate"examples/**/README.md "$crate"src/guide/*.md
done

# The files that the page on the architecture names.
while read -r file; do
    [ -e "src/$file" ] || fault "src/guide/architecture.md: src/$file does not exist"
    links=$((links + 1))
done < <(grep -ohE '`[a-z_/]+\.rs`' src/guide/architecture.md 2>/dev/null | tr -d '`')

if [ "$faults" -gt 0 ]; then
    echo "links: $faults faults among $links links in $pages files"
    exit 1
fi
echo "links: $links links in $pages files are alive"
