#!/usr/bin/env bash
# Compares the requests of this crate with those of the vendors' own Python libraries, option by option. Installs the
# libraries (requirements.txt) below target/, and runs the tests that need them. If they cannot be installed, the script
# prints the reason and succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."

here=tests/options
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/options")
installed=$folder/installed-$(sha256sum $here/requirements.txt | cut -c1-16)

skip() { echo "skipped: $*"; exit 0; }
if [ ! -e "$installed" ]; then
    command -v python3 >/dev/null || skip "there is no python3"
    rm -rf "$folder"
    mkdir -p "$folder"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check \
        --target "$folder/python" -r $here/requirements.txt || skip "pip could not install the libraries"
    touch "$installed"
fi
PYTHONPATH=$folder/python python3 $here/requests.py >"$folder/requests" 2>"$folder/errors" ||
    { tail -20 "$folder/errors"; exit 1; }
echo "the vendors' libraries sent $(wc -l <"$folder/requests") requests"

export TURNSTREAM_SDK_REQUESTS=$folder/requests
cargo test --workspace --all-features --test wires sdk_requests -- --ignored --nocapture | tee "$folder/tests"
wanted=$(grep -c '#\[ignore = "needs the libraries' tests/wires/request_options/sdk_requests.rs)
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$folder/tests")
echo "options: ${ran:-0} tests ran, $((wanted - ${ran:-0})) were skipped"
[ "${ran:-0}" -eq "$wanted" ]
