#!/usr/bin/env bash
# Lists what changed in the public API since the last release and can break a program: `since.sh [RELEASE [FOLDER]]`, where RELEASE is a commit
# or a tag, by default the last tag that begins with `v`, and FOLDER a copy of the repository, by default this one.
#
# Compares the listings that `run.sh` checks. An item that was removed or changed fails, unless the second number of the
# version is a new one (from 1.0 on: the first). So does a new variant or public field of a type without
# `#[non_exhaustive]`, although a field of a struct that also has private fields breaks no program. Two changes that can
# break a program are not found: a new method of a trait that has no default, and the loss of `Send` or `Sync`.
set -euo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C
release=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
folder=${2:-.}
[ -n "$release" ] || { echo "public API: there is no release to compare with"; exit 0; }

# Reads a Cargo.toml, and prints the part of its version that a release with removals changes.
series() { sed -n 's/^version = "\(0\.[0-9]*\|[1-9][0-9]*\)\..*/\1/p' | head -1; }
mapfile -t listings < <(git ls-tree -r --name-only "$release" | grep -E '(^|/)api\.txt$')
# Reads the listing of a release, `-`, and new lines. Prints the lines of members that were added to a type of the release.
members() {
    awk '
        $0 == "-" { is_new = 1; next }
        !is_new && /^pub (enum|struct) / { sub(/[<(].*$/, "", $3); complete[$3] }
        !is_new && /^pub [^ ]*::[A-Z][A-Za-z0-9]*$/ { complete[$2] }
        is_new && /^pub [a-z_0-9]+::/ {
            path = $2
            sub(/\(.*$/, "", path); sub(/:$/, "", path)
            sub(/::[^:]*$/, "", path)
            if (path in complete) print
        }'
}
removed=$(for listing in "${listings[@]}"; do
    comm -23 <(git show "$release:$listing" | sort) <(sort "$folder/$listing" 2>/dev/null || true)
done)
added=$(for listing in "${listings[@]}"; do
    [ -e "$folder/$listing" ] || continue
    { git show "$release:$listing"; echo -; comm -13 <(git show "$release:$listing" | sort) <(sort "$folder/$listing"); } | members
done)
echo "public API: $(grep -c . <<<"$removed" || true) of the items of $release in ${#listings[@]} crates were removed or changed," \
    "$(grep -c . <<<"$added" || true) added to complete types"
[ -n "$removed$added" ] || exit 0
printf '%s\n' "$removed" "$added" | grep .
[ "$(git show "$release:Cargo.toml" | series)" != "$(series <"$folder/Cargo.toml")" ] ||
    { echo "public API: a release with these changes needs another version"; exit 1; }
