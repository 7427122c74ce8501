#!/usr/bin/env bash
# Fuzzes each target for some seconds: `run.sh [SECONDS [TARGET...]]`. Needs a C++ compiler, which is installed if
# possible. The targets are programs of libFuzzer, and this script builds them as `cargo fuzz` does, but with the stable
# compiler and without a sanitizer: the crate contains no unsafe code. New inputs are stored in fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:-10}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"|\1|p' Cargo.toml)
command -v c++ >/dev/null || { apt-get update -qq && apt-get install -y -qq g++; } >/dev/null ||
    { echo "fuzzing: skipped, because there is no C++ compiler"; exit 0; }

# The instrumentation that libFuzzer needs. `--cfg fuzzing` is the convention of `cargo fuzz`.
level=(-sanitizer-coverage-level=4 -sanitizer-coverage-inline-8bit-counters -sanitizer-coverage-pc-table
    -sanitizer-coverage-trace-compares)
flags="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 -Cdebug-assertions"
for option in "${level[@]}"; do flags+=" -Cllvm-args=$option"; done
host=$(rustc -vV | sed -n 's/^host: //p')
# With `--target`, build scripts and macros are not instrumented.
RUSTFLAGS=$flags CARGO_TARGET_DIR=target cargo build --quiet --release --target "$host" "${targets[@]/#/--bin=}"

total=0
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" artifacts
    log=$(mktemp)
    "target/$host/release/$target" "corpus/$target" "seeds/$target" -max_total_time="$seconds" -max_len=4096 \
        -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix=artifacts/ >"$log" 2>&1 ||
        { tail -60 "$log"; exit 1; }
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$target: $runs inputs, $(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2) edges covered"
    rm "$log"
    total=$((total + runs))
done
echo "fuzzing: ${#targets[@]} targets, $total inputs, no failure"
