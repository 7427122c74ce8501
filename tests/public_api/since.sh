#!/usr/bin/env bash
# Lists what the public API no longer has since the last release: `since.sh [RELEASE [FOLDER]]`, where RELEASE is a commit
# or a tag, by default the last tag that begins with `v`, and FOLDER a copy of the repository, by default this one.
#
# Compares the listings that `run.sh` checks. An item that was removed or changed fails, unless the second number of the
# version is a new one (from 1.0 on: the first). Additions that can break a program are not found: a required method of a
# trait, a variant or a public field of a type without `#[non_exhaustive]`, and the loss of `Send` or `Sync`.
set -euo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C
release=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
folder=${2:-.}
[ -n "$release" ] || { echo "public API: there is no release to compare with"; exit 0; }

# Reads a Cargo.toml, and prints the part of its version that a release with removals changes.
series() { sed -n 's/^version = "\(0\.[0-9]*\|[1-9][0-9]*\)\..*/\1/p' | head -1; }
mapfile -t listings < <(git ls-tree -r --name-only "$release" | grep -E '(^|/)api\.txt$')
removed=$(for listing in "${listings[@]}"; do
    comm -23 <(git show "$release:$listing" | sort) <(sort "$folder/$listing" 2>/dev/null || true)
done)
echo "public API: $(grep -c . <<<"$removed" || true) of the items of $release in ${#listings[@]} crates were removed or changed"
[ -n "$removed" ] || exit 0
printf '%s\n' "$removed"
[ "$(git show "$release:Cargo.toml" | series)" != "$(series <"$folder/Cargo.toml")" ] ||
    { echo "public API: a release with these changes needs another version"; exit 1; }
