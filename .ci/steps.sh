# Steps of `.ci/run` and `.ci/long`, which source this file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A temporary folder of the script, which is removed when the script ends.
scratch=''
# The rows of the table of times, of the steps that have ended.
rows=$(mktemp)
# The process of this script or lane. `$$` is always the script.
process=$$
title='' prefix=''
# step TITLE: prints the title, and the time since the start.
step() {
    end_step
    title=$* start=$SECONDS cpu_start=$(cpu_seconds)
    printf '\n== %s (%s)\n' "$title" "$(minutes $SECONDS)"
}
# Adds the row of the current step to the table: its time, and its CPU time.
end_step() {
    [ -n "$title" ] || return 0
    printf '%6s %6s  %s\n' "$(minutes $((SECONDS - start)))" "$(minutes $(($(cpu_seconds) - cpu_start)))" \
        "$prefix$title" >>"$rows"
    title=''
}
# Prints the CPU time of this process and of the programs that it has waited for.
cpu_seconds() {
    awk -v ticks="$(getconf CLK_TCK)" '{ print int(($14 + $15 + $16 + $17) / ticks) }' "/proc/$process/stat"
}
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# The process groups of the running lanes, and the steps that failed in lanes.
lanes=() failed=()
# both FIRST SECOND: runs two functions with steps, called lanes, at the same time. The output of the second is printed
# when both have ended. If one fails, the other is ended.
both() {
    local folder lane ended status=0
    end_step
    folder=$(mktemp -d)
    # Each lane is a process group.
    set -m
    lane "$1" "$folder" &
    lanes+=($!)
    lane "$2" "$folder" >"$folder/log" 2>&1 &
    lanes+=($!)
    set +m
    wait -n -p ended "${lanes[@]}" || status=$?
    for lane in "${lanes[@]}"; do
        [ $status -ne 0 ] || [ "$lane" = "$ended" ] || wait "$lane" || status=$?
    done
    end_lanes
    cat "$folder/log"
    for lane in "$1" "$2"; do
        cat "$folder/$lane.rows" >>"$rows"
        [ ! -e "$folder/$lane.failed" ] || failed+=("$(<"$folder/$lane.failed")")
    done
    rm -rf "$folder"
    [ $status -eq 0 ] || exit $status
}
# lane FUNCTION FOLDER: runs one lane, and writes its rows and the title of its failed step to the folder.
lane() {
    set +m
    process=$BASHPID rows=$2/$1.rows prefix="$1: " lanes=()
    trap 'lane_status=$?; [ $lane_status -eq 0 ] || [ $lane_status -eq 143 ] || echo "$title" >'"$2/$1.failed; end_step" EXIT
    : >"$rows"
    "$1"
    exit 0
}
# Ends the lanes that still run.
end_lanes() {
    local lane
    for lane in "${lanes[@]}"; do
        kill -TERM -- "-$lane" 2>/dev/null || true
    done
    wait "${lanes[@]}" 2>/dev/null || true
    lanes=()
}

# Prints the minutes that each step took, and those of CPU time. If a step failed, names it.
finish() {
    local status=$?
    [ ${#lanes[@]} -eq 0 ] || end_lanes
    [ -z "$title" ] || [ $status -eq 0 ] || failed+=("$title")
    end_step
    printf '\n== minutes, and of CPU time\n'
    cat "$rows"
    rm -rf "$rows" "$scratch"
    printf '%6s %6s  all steps\n' "$(minutes $SECONDS)" "$(minutes "$(cpu_seconds)")"
    if [ $status -ne 0 ]; then
        printf 'FAILED: %s\n' "${failed[@]:-the script was ended}"
    else
        echo "all is well"
    fi
    exit $status
}
trap finish EXIT
# A script that is killed has failed.
trap 'exit 143' INT TERM

# On a bare machine, installs a C compiler and linker (the TLS library contains C code), and Rust.
if ! command -v cc >/dev/null; then
    step "install a C compiler"
    apt-get update -qq && apt-get install -y -qq gcc libc6-dev
fi
if ! command -v cargo >/dev/null; then
    step "install Rust"
    apt-get update -qq && apt-get install -y -qq rustup && rustup default 1.95.0
    export PATH="$HOME/.cargo/bin:$PATH"
fi
rustup component add rustfmt clippy >/dev/null 2>&1 || true
# Panics report their line without debug information, and the build is faster.
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
# Packages outside of the workspace share the crates that are built.
export CARGO_TARGET_DIR="$PWD/target"

# Prints the name and the lowest supported version of Rust of each published crate, in the order of their dependencies.
published() {
    cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
packages = {p["name"]: p for p in json.load(sys.stdin)["packages"] if p["publish"] is None}
needs = {
    name: {d["name"] for d in package["dependencies"] if d["kind"] is None} & packages.keys()
    for name, package in packages.items()
}
order = []
while len(order) < len(packages):
    order += sorted(name for name in packages.keys() - set(order) if needs[name] <= set(order))
for name in order:
    print(name, packages[name]["rust_version"])'
}
