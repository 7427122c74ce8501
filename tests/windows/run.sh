#!/usr/bin/env bash
# Runs the unit and integration tests as Windows programs, with Wine. Installs Wine, the C compiler of MinGW and Rust's
# standard library for Windows. If they cannot be installed, the script prints the reason and succeeds.
#
# Wine is not Windows: other handles can read and write a locked file, and an open file cannot be replaced.
#
# `run.sh PACKAGE…` runs the tests of other packages than `turnstream`.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=x86_64-pc-windows-gnu
packages=("$@")
[ $# -gt 0 ] || packages=(turnstream)
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/windows")
log=$folder/log

skip() { echo "skipped: $*"; exit 0; }
install() {
    command -v apt-get >/dev/null && { apt-get update -qq && apt-get install -y -qq "$@"; } >/dev/null 2>&1
}
command -v wine >/dev/null || install wine wine64 || skip "apt-get could not install wine"
command -v x86_64-w64-mingw32-gcc >/dev/null || install gcc-mingw-w64-x86-64 ||
    skip "apt-get could not install gcc-mingw-w64-x86-64"
rustup target add $target >/dev/null 2>&1 || skip "the standard library for $target cannot be installed"

mkdir -p "$folder"
# The drive C is a folder, with the temporary files of the tests.
export WINEPREFIX=$folder/prefix WINEDEBUG=-all
wine wineboot --init >/dev/null 2>&1 || skip "wine does not start"
x86_64-w64-mingw32-gcc -shared -O2 -o "$folder/bcryptprimitives.dll" tests/windows/bcryptprimitives.c -ladvapi32
# Programs look for libraries in WINEPATH. Drive Z is the file system of Linux.
export WINEPATH="Z:${folder//\//\\}"
echo "$(wine --version), $(x86_64-w64-mingw32-gcc --version | head -1)"

export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
options=(--target $target --all-features)
for package in "${packages[@]}"; do options+=(-p "$package"); done
# Tests start the examples.
cargo build --quiet "${options[@]}" --examples
status=0
RUST_BACKTRACE=0 cargo test "${options[@]}" --no-fail-fast --lib --bins --tests >"$log" 2>&1 || status=$?
if [ $status -ne 0 ]; then
    grep -nE '^error|^    [a-z_]+(::[a-z_0-9]+)+$|panicked at' "$log" || tail -50 "$log"
    echo "the output is in $log"
fi
read -r ran failed skipped < <(awk '/^test result: / { ran += $4 + $6; failed += $6; skipped += $8 }
    END { print ran + 0, failed + 0, skipped + 0 }' "$log")
echo "windows: $ran tests ran, $skipped were skipped"
[ $status -eq 0 ] && [ "$ran" -gt 0 ] && [ "$failed" -eq 0 ]
