#!/usr/bin/env bash
# Installs the Restate server that the tests need, and prints the path of its program as the last line: the program
# that TURNSTREAM_RESTATE_SERVER names, or the one from the npm registry in TURNSTREAM_TOOLS (default:
# target/tools of the workspace). If it is already installed, nothing is downloaded. If it cannot be installed, the script
# prints the reason in one line and fails.
#
# The platform's own package is installed: the umbrella package `@restatedev/restate-server` adds install telemetry and
# starts the server through a wrapper, which could be killed without the server. The server is licensed under the
# Business Source License 1.1: use it for tests, never commit it.
set -euo pipefail
cd "$(dirname "$0")/.."

# NOTE: the version that the README of this folder names, and whose behavior tests/assumptions.rs checks.
version=1.7.12

fail() { echo "no Restate server: $*" >&2; exit 1; }
is_right_version() { [ "$("$1" --version 2>/dev/null)" = "restate-server $version" ]; }

if [ -n "${TURNSTREAM_RESTATE_SERVER:-}" ]; then
    [ -x "$TURNSTREAM_RESTATE_SERVER" ] || fail "TURNSTREAM_RESTATE_SERVER=$TURNSTREAM_RESTATE_SERVER is not a program"
    realpath "$TURNSTREAM_RESTATE_SERVER"
    exit
fi

case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) platform=linux-x64 ;;
    Linux-aarch64 | Linux-arm64) platform=linux-arm64 ;;
    Darwin-x86_64) platform=darwin-x64 ;;
    Darwin-arm64) platform=darwin-arm64 ;;
    *) fail "there is no package for $(uname -s) on $(uname -m)" ;;
esac
package=@restatedev/restate-server-$platform

tools=${TURNSTREAM_TOOLS:-../../target/tools}
mkdir -p "$tools"
tools=$(cd "$tools" && pwd)
server=$tools/node_modules/$package/bin/restate-server

if ! is_right_version "$server"; then
    if ! command -v npm >/dev/null; then
        command -v apt-get >/dev/null || fail "there is no npm, and no apt-get to install it with"
        { apt-get update -qq && apt-get install -y -qq nodejs npm; } >/dev/null 2>&1 ||
            fail "apt-get could not install npm"
    fi
    # Git must not see the program, in any folder.
    echo '*' >"$tools/.gitignore"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # `--prefix`: the folder has no package.json that npm would look for further up.
    npm install --prefix "$tools" --no-audit --no-fund --ignore-scripts --loglevel error \
        "$package@$version" >"$log" 2>&1 ||
        fail "npm could not install $package@$version: $(grep -m1 '^npm error' "$log")"
    is_right_version "$server" || fail "$server does not run here, or is not version $version"
fi

echo "$server"
