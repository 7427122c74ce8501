#!/usr/bin/env bash
# Takes the pictures of crates/otel/README.md: sends the trace of the example `otlp` to a Phoenix server (arize-phoenix, a
# viewer for OpenTelemetry's traces), and opens the server's page in Debian's Chromium. If they cannot be installed, the
# script prints the reason and succeeds. `run.sh FOLDER` writes the pictures to that folder.
set -euo pipefail
cd "$(dirname "$0")/../../../.."

version=20.26.1
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
viewer=$target/phoenix-$version
folder=${1:-crates/otel/pictures}

skip() { echo "skipped: $*"; exit 0; }
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skip "chromium is not installed, and this user cannot install it"
    { apt-get update -qq && apt-get install -y -qq chromium chromium-driver fonts-dejavu-core; } >/dev/null ||
        skip "chromium could not be installed"
fi
if [ ! -x "$viewer/bin/phoenix" ]; then
    { python3 -m venv "$viewer" && "$viewer/bin/pip" install -q "arize-phoenix==$version"; } ||
        skip "arize-phoenix could not be installed"
fi

data=$(mktemp -d)
started=()
trap 'for pid in "${started[@]}"; do kill -- "-$pid" 2>/dev/null || true; done; rm -rf "$data"' EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
page=$(free_port) grpc=$(free_port) driver=$(free_port)
PHOENIX_WORKING_DIR=$data PHOENIX_HOST=127.0.0.1 PHOENIX_PORT=$page PHOENIX_GRPC_PORT=$grpc \
    PHOENIX_TELEMETRY_ENABLED=false setsid "$viewer/bin/phoenix" serve >"$data/log" 2>&1 &
started+=($!)
setsid chromedriver --port="$driver" >"$data/driver" 2>&1 &
started+=($!)
for _ in $(seq 600); do
    curl -fs "http://127.0.0.1:$page/healthz" >/dev/null && break
    sleep 0.1
done
cargo run --quiet --workspace --all-features --example otlp -- "http://127.0.0.1:$page"
for _ in $(seq 100); do
    curl -fs "http://127.0.0.1:$page/v1/projects/default/spans?limit=1" | grep -q trace_id && break
    sleep 0.1
done
mkdir -p "$folder"
python3 crates/otel/tests/pictures/pictures.py "http://127.0.0.1:$driver" "http://127.0.0.1:$page" "$folder"
# The guide's page contains its picture.
[ -n "${1:-}" ] || base64 -w0 "$folder/retry.png" >crates/otel/src/guide/retry.png.base64
ls -l "$folder"
