# Source this script from the root of the repository: `new_project` creates a project with the README's lines for
# `Cargo.toml` in a temporary folder, and sets `project` to its path. The repository takes the place of the published crate.
# All these projects share a build of the crate.
set -euo pipefail
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}" CARGO_TERM_COLOR=never

new_project() {
    project=$(mktemp -d)
    trap 'rm -rf "$project"' EXIT
    mkdir "$project/src"
    cp Cargo.lock "$project/"
    {
        printf '[package]\nname = "from-the-readme"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n\n'
        printf '[patch.crates-io]\nturnstream = { path = "%s" }\n\n' "$PWD"
        # The dependencies come last: a script may add some.
        awk '/^```toml$/ { on = 1; next } /^```$/ { on = 0 } on' README.md
    } >"$project/Cargo.toml"
}
