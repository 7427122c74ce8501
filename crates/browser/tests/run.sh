#!/usr/bin/env bash
# Opens the page of the examples `web` and `fleet` in Debian's Chromium, and uses it like a user. Installs the browser,
# its driver and axe-core (package-lock.json), and a Restate server for `fleet` (crates/restate/tests/install.sh). If they
# cannot be installed, the script prints the reason and succeeds; if they are installed, no test may be skipped.
# `run.sh NAME` runs only the tests with that name. With TURNSTREAM_PICTURES=FOLDER, the pictures of the READMEs are
# written to that folder.
set -euo pipefail
cd "$(dirname "$0")/../../.."

here=crates/browser/tests
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
folder=$target/browser

skip() { echo "skipped: $*"; exit 0; }
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skip "chromium is not installed, and this user cannot install it"
    { apt-get update -qq && apt-get install -y -qq chromium chromium-driver fonts-dejavu-core; } >/dev/null ||
        skip "chromium could not be installed"
fi
if [ ! -e "$folder/node_modules/axe-core/axe.min.js" ]; then
    command -v npm >/dev/null || skip "there is no npm to install axe-core with"
    mkdir -p "$folder"
    cp $here/package.json $here/package-lock.json "$folder"
    npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel error ||
        skip "npm could not install axe-core"
fi

# The functions that the two install scripts call.
postgres_skip() { skip "$*"; }
redis_skip() { skip "$*"; }
source crates/postgres/tests/install.sh
source crates/redis/tests/install.sh

# The server that the example `fleet` needs.
skipped=()
if TURNSTREAM_RESTATE_SERVER=$(crates/restate/tests/install.sh | tail -1); then
    export TURNSTREAM_RESTATE_SERVER
    cargo build --quiet --workspace --all-features --example fleet
    export TURNSTREAM_FLEET=$target/debug/examples/fleet
else
    unset TURNSTREAM_RESTATE_SERVER
    echo "skipped: the tests of the example fleet, which need a Restate server"
    skipped=(--skip fleet::)
fi

driver_log=$folder/driver
: >"$driver_log"
# The driver and its browsers are a process group, so that no browser of a failed test outlives the script.
setsid chromedriver --port=0 >"$driver_log" 2>&1 &
driver=$!
trap 'kill -- -$driver 2>/dev/null || true' EXIT
for _ in $(seq 100); do
    port=$(sed -n 's/.*started successfully on port \([0-9]*\).*/\1/p' "$driver_log")
    [ -n "$port" ] && break
    sleep 0.1
done
[ -n "$port" ] || { cat "$driver_log"; exit 1; }
echo "$(chromium --version 2>/dev/null), $(chromedriver --version | cut -d'(' -f1)"

cargo build --quiet --workspace --all-features --example web --example growing_form
export TURNSTREAM_WEBDRIVER=http://127.0.0.1:$port TURNSTREAM_WEB=$target/debug/examples/web
export TURNSTREAM_FORM=$target/debug/examples/growing_form
export TURNSTREAM_AXE=$folder/node_modules/axe-core/axe.min.js
log=$folder/log
cargo test --workspace --all-features --test browser -- --ignored --nocapture --test-threads 2 "${skipped[@]}" "$@" \
    2>"$folder/errors" |
    tee "$log" || { grep -v "^ *[0-9]*: \|^  *at " "$folder/errors" | tail -80; exit 1; }
count() { grep -rh "#\[ignore = \"needs $1" $here --include='*.rs' | wc -l; }
web=$(count "a browser") fleet=$(count "Chromium and a Restate server")
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$log")
echo "page: ${ran:-0} tests in a browser ran, $((web + fleet - ${ran:-0})) were skipped"
[ ${#skipped[@]} -eq 0 ] || fleet=0
[ $# -gt 0 ] || [ "${ran:-0}" -eq $((web + fleet)) ]
