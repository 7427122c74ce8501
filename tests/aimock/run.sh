#!/usr/bin/env bash
# Runs the program over all four wires against a third-party mock server, npm's
# @copilotkit/aimock. Installs the server below target/, starts it on a free port, and runs the tests in
# `other_servers` of `crates/cli` against it. If the server cannot be installed, the script prints the reason
# and succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=1.43.0
folder=${CARGO_TARGET_DIR:-target}/aimock

skip() { echo "skipped: $*"; exit 0; }
command -v npm >/dev/null || skip "there is no npm to install the server @copilotkit/aimock with"
node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' ||
    skip "@copilotkit/aimock needs Node 20, but the installed version is $(node --version)"
mkdir -p "$folder"
npm install --prefix "$folder" --no-audit --no-fund --loglevel error "@copilotkit/aimock@$version" ||
    skip "npm could not install @copilotkit/aimock $version"

log=$folder/log
# With port 0, the system chooses a free port, which the server writes to its log.
node "$folder/node_modules/.bin/llmock" -p 0 -f tests/aimock/fixtures.json --strict \
    --validate-on-load --chunk-size 5 >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
url=
for _ in $(seq 100); do
    url=$(grep -o 'http://127.0.0.1:[0-9]*' "$log" | head -1 || true)
    [ -n "$url" ] && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
if [ -z "$url" ]; then
    cat "$log"
    echo "the server did not start"
    exit 1
fi
echo "@copilotkit/aimock $version listens on $url"
TURNSTREAM_OTHER_SERVER=$url cargo test -p turnstream-cli --test program other_servers -- --ignored --nocapture | tee "$folder/tests"
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$folder/tests")
wanted=$(grep -c '#\[ignore = "needs npm' crates/cli/tests/program/other_servers.rs)
echo "aimock: ${ran:-0} tests with the server ran, $((wanted - ${ran:-0})) were skipped"
[ "${ran:-0}" -eq "$wanted" ]
